"""Whether a run fits into the memory of its GPUs, before it takes any."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..devices.cuda.availability import free_bytes_of
from ..devices.cuda.batches import RESIDENT_SHARE
from ..devices.cuda.memory import LIBRARY_BYTES, step_bytes
from ..errors import MemoryEstimateError
from ..nn.network import state_layout
from ..training.messages import Sharing
from . import memory
from .memory import largest_hidden, readable

if TYPE_CHECKING:
    from ..data.csr import CSR
    from .fitted import FittedModel
    from .plan import TrainingPlan
    from .training_data import TrainingData


def gpu_estimate(plan: TrainingPlan, data: TrainingData, name: str, free: float = math.inf) -> dict[str, int]:
    """Return the bytes that the learners of GPU `name` take, by part, and their sum as "total".

    Data count where they are so small a part of the `free` bytes that they may stay there; else they travel.
    """
    X, Y, network = data.dataset.X, data.dataset.Y, plan.network
    learners, parameters = sum(worker.name == name for worker in plan.workers), 4 * network.layout.size
    travels = 8 * max(X.nnz, Y.nnz) > RESIDENT_SHARE * free
    entries = sum(_large_batch(matrix, plan.batch_size) for matrix in (X, Y))
    step = step_bytes(network, plan.batch_size, entries, travels, plan.precision != "float32")
    parts = {
        "parameters": learners * parameters,
        "optimizer_state": 4 * learners * state_layout(network.layout, plan.optimizer).size,
        "data": 0 if travels else 8 * learners * (X.nnz + Y.nnz),
        "step": learners * step,
        "libraries": LIBRARY_BYTES,
    }
    algorithm = plan.equal_algorithm
    if algorithm.sharing is Sharing.REPLICAS and learners == len(plan.workers):  # merged where they are
        parts["merging"] = (2 + algorithm.merge_state_vectors(learners)) * parameters
    if data.held_out and plan.workers[0].name == name:
        parts["evaluation"] = parameters + 8 * data.held_out.X.nnz
    return {**parts, "total": sum(parts.values())}


def on_gpus(plan: TrainingPlan, data: TrainingData) -> dict[str, int]:
    """Return the bytes that a run takes on each GPU, by its name."""
    return {name: gpu_estimate(plan, data, name)["total"] for name in _gpus(plan)}


def check_memory(plan: TrainingPlan, data: TrainingData, earlier: FittedModel | None) -> None:
    """Raise `MemoryEstimateError` for a run that the process's memory, beside `earlier`, or a GPU's would not hold."""
    memory.check(plan, data, earlier)
    if earlier is not None:
        earlier.forget_scorers()
    check_gpus(plan, data)


def check_gpus(plan: TrainingPlan, data: TrainingData) -> None:
    """Raise `MemoryEstimateError` with the parts, and what would fit, where a GPU has too little free memory."""
    for name in _gpus(plan):
        free = free_bytes_of(int(name.partition(":")[2] or 0))
        found = gpu_estimate(plan, data, name, free)
        if found["total"] <= free:
            continue

        def fits(other: TrainingPlan, name: str = name, free: int = free) -> bool:
            return gpu_estimate(other, data, name, free)["total"] <= free

        remedies = [largest_hidden(plan, fits)]
        if sum(worker.name == name for worker in plan.workers) > 1:
            remedies.append("fewer learners on it take less")
        parts = ", ".join(f"{part} {readable(size)}" for part, size in found.items() if part != "total")
        raise MemoryEstimateError(
            f"device {name!r}: training needs about {readable(found['total'])} ({parts}), {readable(free)} are free; "
            f"{', '.join(remedies)}; a smaller batch_size, and optimizer='sgd' or 'row_adagrad', take less"
        )


def _gpus(plan: TrainingPlan) -> list[str]:
    """Return the names of the devices with a memory of their own."""
    return sorted({worker.name for worker in plan.workers if worker.kind == "cuda"})


def _large_batch(matrix: CSR, batch: int) -> int:
    """Return about how many entries a batch has: the mean, and half as much again."""
    return int(1.5 * batch * matrix.nnz / max(matrix.n_rows, 1))
