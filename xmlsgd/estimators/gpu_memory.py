"""Whether a run fits into the memory of its GPUs, before it takes any."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from ..devices.cuda.availability import free_bytes_of
from ..devices.cuda.batches import RESIDENT_SHARE
from ..devices.cuda.memory import LIBRARY_BYTES, Sizes, step_bytes, top_k_bytes
from ..errors import MemoryEstimateError
from ..nn.network import state_layout
from ..training.executors.device_merging import SLICE
from ..training.messages import Sharing
from .inference.blocks import row_blocks
from .memory import largest_batch, largest_hidden

if TYPE_CHECKING:
    from ..data.csr import CSR
    from .task import Task

RULE = 4  # slices that a merge rule computes beside one for each replica
BEST = 5  # labels of a row that are ranked when held-out rows are measured


def gpu_estimate(task: Task, name: str, free: float = math.inf) -> dict[str, int]:
    """Return the bytes that the learners of GPU `name` take, by part, and their sum as "total".

    Data count where they are so small a part of the `free` bytes that they may stay there; else they travel.
    """
    learners = sum(worker.name == name for worker in task.workers)
    network, optimizer, device = task.network, task.optimizer, task.device
    bfloat16 = device.bfloat16 if task.workers[0].name == name else True
    data = [_bytes(matrix) for matrix in (task.dataset.X, task.dataset.Y)]
    travels = max(data) > RESIDENT_SHARE * free
    sizes = _sizes(task, travels)
    step = step_bytes(sizes, bfloat16)
    parts = {
        "parameters": 4 * learners * network.layout.size,
        "optimizer_state": 4 * learners * state_layout(network.layout, optimizer).size,
        "data": 0 if travels else learners * sum(data),
        "step": learners * step,
        "libraries": LIBRARY_BYTES,
    }
    if task.algorithm.sharing is Sharing.REPLICAS and learners == len(task.workers):  # merged where they are
        size = network.layout.size
        parts["merging"] = 4 * (
            (1 + task.algorithm.merge_state_vectors(learners)) * size + (learners + RULE) * min(size, SLICE)
        )
    if task.held_out and task.workers[0].name == name:
        rows = len(row_blocks(task.held_out.n_rows, max(network.hidden))[0])
        ranking = top_k_bytes(rows, BEST, sizes, bfloat16)
        shared = step if len(task.workers) == 1 else 0  # one device ranks in the buffers of its steps
        parts["evaluation"] = 4 * network.layout.size + max(ranking - shared, 0) + _bytes(task.held_out.X)
    return {**parts, "total": sum(parts.values())}


def on_gpus(task: Task) -> dict[str, int]:
    """Return the bytes that a run takes on each GPU, by its name."""
    return {name: gpu_estimate(task, name)["total"] for name in _gpus(task)}


def check_gpus(task: Task) -> None:
    """Raise `MemoryEstimateError` with the parts, and what would fit, where a GPU has too little free memory."""
    for name in _gpus(task):
        free = free_bytes_of(int(name.partition(":")[2] or 0))
        found = gpu_estimate(task, name, free)
        if found["total"] <= free:
            continue
        remedies = [largest_hidden(task, partial(_fits, name=name, free=free))]
        if sum(worker.name == name for worker in task.workers) > 1:
            remedies.append("fewer learners on it take less")
        parts = ", ".join(f"{part} {size / 1e9:.2f}" for part, size in found.items() if part != "total")
        raise MemoryEstimateError(
            f"device {name!r}: training needs about {found['total'] / 1e9:.2f} GB ({parts}), {free / 1e9:.2f} GB are "
            f"free; {', '.join(remedies)}; a smaller batch_size, and optimizer='sgd' or 'row_adagrad', take less"
        )


def _fits(task: Task, name: str, free: int) -> bool:
    """Return whether a run would fit into the `free` bytes of GPU `name`."""
    return gpu_estimate(task, name, free)["total"] <= free


def _gpus(task: Task) -> list[str]:
    """Return the names of the devices with a memory of their own."""
    return sorted({worker.name for worker in task.workers if worker.kind == "cuda"})


def _sizes(task: Task, travels: bool) -> Sizes:
    """Return the sizes of a step."""
    entries, labels = (largest_batch(matrix, task.batch) for matrix in (task.dataset.X, task.dataset.Y))
    network = task.network
    return Sizes(
        task.batch, entries, labels, network.hidden, network.n_labels, travels, network.loss == "softmax"
    )  # fmt: skip


def _bytes(matrix: CSR) -> int:
    """Return the bytes of a matrix that stays on a GPU."""
    return 8 * matrix.nnz
