"""Estimate the memory of a training run, in the process and on its GPUs, before it starts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..data.csr import Dataset
from ..devices.cuda.availability import free_bytes_of
from ..devices.cuda.batches import RESIDENT_SHARE
from ..devices.cuda.step_memory import LIBRARY_BYTES
from ..devices.cuda.step_memory import step_bytes as gpu_step_bytes
from ..errors import MemoryEstimateError
from ..nn.network import Network, state_layout
from ..training.messages import Sharing
from ..training.shared_parameters import shared_shape, worker_arrays
from .fitted import FittedModel
from .inference.compact import CompactParams
from .plan import Decision, TrainingPlan
from .training_data import TrainingData

SCRATCH = 0.03  # share of the model and optimizer state: chunks of the output layer, evaluation
STEP_ROW = 1000  # bytes per row and thread of a step besides activations: packed logits of a chunk, features, labels
SCRATCH_ROW = 8  # bytes per row: the row order
WORKER_BYTES = 150_000_000  # of a worker process with Numba and its kernels
# Per pair of a held-out row and a label while stacking is learned: scores, log odds, losses.
PAIR_BYTES = 130
MOST_PER_ENTRY = 6  # weights of the linear classifiers per stored feature of the rows; 0.2 to 3 were measured
# Per label while candidates are learned: counts, pointers and frequencies; per thread, scratch arrays; and, if both are
# there at once, arrays of the network's training. With 900,000 labels of 1,200 rows, 204 bytes per label were measured
# with one thread and 364 with two.
LABEL_BYTES, LABEL_SCRATCH, LABEL_BESIDE_NETWORK = 140, 90, 80
SOLVER_BYTES = 25  # per feature, for each thread that solves
SHARE = 0.8  # of the limit that an estimate may reach: the rest is for the interpreter, kernels and other programs


def estimate(plan: TrainingPlan, data: TrainingData, earlier: FittedModel | None = None) -> dict[str, int]:
    """Return the bytes of a training run by part, and their sum as "total".

    `replicas` are models and optimizer states of workers, and merge states. `buffers` are for steps, of the largest
    batches of the algorithm, and for evaluation. `candidates` is for learning them. `earlier_model` is a model that is
    kept until the new one is done. `folds` are the temporary networks and the initial parameters. Memory-mapped data
    count as zero, as the system can reclaim their pages.
    """
    network = plan.network
    labelled = [data.all_rows] if data.validation is None else [data.all_rows, data.validation]
    parameters, state = 4 * network.layout.size, 4 * state_layout(network.layout, plan.optimizer).size
    ranked = data.validation or plan.held_out_size.of(data.n_given_rows)
    packed = 2 * network.n_labels * network.hidden[-1] if ranked and plan.precision == "bfloat16" else 0
    rows = most_rows(plan, data)
    steps = sum(step_bytes(network, rows, worker.n_threads) for worker in plan.workers if worker.kind == "cpu")
    several = len(plan.workers) > 1  # several workers are processes, and get a copy of the data that they share
    parts = {
        "parameters": parameters,
        "optimizer_state": state,
        "earlier_model": model_bytes(earlier) if earlier else 0,
        "folds": (1 + plan.n_temporary_networks) * parameters + state if plan.n_temporary_networks else 0,
        "data": sum(map(_resident_data, labelled)) + _landmarks(plan, data),
        "replicas": _replicas(plan),
        "workers": several * (_resident_data(data.all_rows) + len(plan.workers) * WORKER_BYTES),
        "names": 8 * network.n_labels,
        "buffers": int(SCRATCH * (parameters + state)) + SCRATCH_ROW * data.all_rows.n_rows + packed + steps,
        "candidates": _candidates(plan, data),
    }
    return {**parts, "total": sum(parts.values())}


def with_estimate(plan: TrainingPlan, total: int) -> TrainingPlan:
    """Return the plan with the estimated memory, `total` bytes, among its decisions."""
    most = allowed()
    too_large = "too large: " if total > most else ""
    reason = f"{too_large}estimated, besides Python and kernels; a run may use {readable(most)}, 80 % of the memory"
    return replace(plan, decisions=(*plan.decisions, Decision("memory", readable(total), reason)))


def most_rows(plan: TrainingPlan, data: TrainingData) -> int:
    """Return the rows of the largest batch of a run."""
    return min(plan.algorithm.most_rows(len(plan.workers)), data.n_given_rows)


def step_bytes(network: Network, rows: int, n_threads: int) -> int:
    """Return the bytes of activations, their gradients and other arrays of a step of `rows` rows on a CPU.

    Each thread has a gradient of the last hidden layer, and in float32 a part of one.
    """
    vectors = 2 * sum(network.hidden) + (1 + 2 * n_threads) * network.hidden[-1]
    return rows * (4 * vectors + STEP_ROW * n_threads)


def gpu_estimate(plan: TrainingPlan, data: TrainingData, name: str, free: float = math.inf) -> dict[str, int]:
    """Return the bytes that the learners on GPU `name` need, by part, and their sum as "total".

    Data count only if they are small enough, in relation to the `free` bytes, to stay on the GPU; otherwise each step
    copies its rows.
    """
    X, Y, network = data.all_rows.X, data.all_rows.Y, plan.network
    learners, parameters = sum(worker.name == name for worker in plan.workers), 4 * network.layout.size
    travels = 8 * max(X.nnz, Y.nnz) > RESIDENT_SHARE * free
    # A large batch has half as many entries again as an average one.
    rows = most_rows(plan, data)
    entries = sum(int(1.5 * rows * matrix.nnz / max(matrix.n_rows, 1)) for matrix in (X, Y))
    step = gpu_step_bytes(network, rows, entries, travels, plan.precision != "float32")
    parts = {
        "parameters": learners * parameters,
        "optimizer_state": 4 * learners * state_layout(network.layout, plan.optimizer).size,
        "data": 0 if travels else 8 * learners * (X.nnz + Y.nnz),
        "step": learners * step,
        "libraries": LIBRARY_BYTES,
    }
    algorithm = plan.algorithm
    if algorithm.sharing is Sharing.REPLICAS and learners == len(plan.workers):  # merged on the GPU
        parts["merging"] = (2 + algorithm.merge_state_vectors(learners)) * parameters
    if data.validation and plan.workers[0].name == name:
        parts["evaluation"] = parameters + 8 * data.validation.X.nnz
    return {**parts, "total": sum(parts.values())}


def on_gpus(plan: TrainingPlan, data: TrainingData) -> dict[str, int]:
    """Return the bytes that a run needs on each GPU, by its name."""
    return {name: gpu_estimate(plan, data, name)["total"] for name in _gpus(plan)}


def check(plan: TrainingPlan, data: TrainingData, earlier: FittedModel | None) -> None:
    """Raise `MemoryEstimateError` if the run, besides the model `earlier`, would not fit into memory or on a GPU."""
    estimated = estimate(plan, data, earlier)
    if estimated["total"] > allowed():
        several = estimated["workers"] + estimated["replicas"]
        if several > estimated["total"] - several:  # workers need more than all the rest
            remedies = ["use fewer workers in devices"]
        elif estimated["buffers"] > estimated["total"] - estimated["buffers"]:
            remedies = ["use a smaller batch_size"]
        else:
            remedies = [largest_hidden(plan, lambda other: estimate(other, data, earlier)["total"] <= allowed())]
        remedies = [*_remedies_of_gaps(data.all_rows), *remedies]
        if earlier:
            remedies.append("a clone() of the model lets go of the earlier one")
        limit = f"more than 80 % of {readable(memory_limit())}"
        raise _too_large("", estimated, limit, remedies, ", and the optimizers row_rmsprop and sgd keep less state")
    if earlier is not None:
        earlier.forget_scorers()
    for name in _gpus(plan):
        _check_gpu(plan, data, name)


def _remedies_of_gaps(dataset: Dataset) -> list[str]:
    """Return a remedy for features, and for labels, of which less than half occur."""
    found = []
    for name, rows in (("features", dataset.X), ("labels", dataset.Y)):
        if 2 * (n := len(np.unique(rows.indices))) < rows.n_cols:
            found.append(f"only {n:,} of {rows.n_cols:,} {name} occur, number them without gaps")
    return found


def _check_gpu(plan: TrainingPlan, data: TrainingData, name: str) -> None:
    """Raise `MemoryEstimateError` if the run would not fit into the memory of GPU `name`."""
    free = free_bytes_of(int(name.partition(":")[2] or 0))
    found = gpu_estimate(plan, data, name, free)
    if found["total"] <= free:
        return
    remedies = [largest_hidden(plan, lambda other: gpu_estimate(other, data, name, free)["total"] <= free)]
    if sum(worker.name == name for worker in plan.workers) > 1:
        remedies.append("fewer learners on it take less")
    more = "; a smaller batch_size, and optimizer='sgd' or 'row_rmsprop', take less"
    raise _too_large(f"device {name!r}: ", found, f"{readable(free)} are free", remedies, more)


def _too_large(where: str, parts: dict[str, int], limit: str, remedies: list[str], more: str) -> MemoryEstimateError:
    """Return the error for a run that needs too much memory: its parts, the limit, and what would fit."""
    shown = ", ".join(f"{name} {readable(size)}" for name, size in parts.items() if size and name != "total")
    needed = f"training needs about {readable(parts['total'])} ({shown}), {limit}"
    return MemoryEstimateError(f"{where}{needed}; {', '.join(remedies)}{more}")


def largest_hidden(plan: TrainingPlan, fits: Callable[[TrainingPlan], bool]) -> str:
    """Describe the largest hidden layers, in the same proportions as those of `plan`, for which `fits` is true."""
    layers, low, high = plan.network.hidden, 0, max(plan.network.hidden)  # `high` does not fit

    def scaled(width: int) -> tuple[int, ...]:
        return tuple(max(layer * width // max(layers), 1) for layer in layers)

    while high - low > 1:
        width = (low + high) // 2
        if fits(replace(plan, network=replace(plan.network, hidden=scaled(width)))):
            low = width
        else:
            high = width
    if low == 0:
        return "no hidden_layer_sizes would fit, use a machine with more memory"
    return f"hidden_layer_sizes={scaled(low)} (--hidden {','.join(map(str, scaled(low)))}) is the largest that fits"


def model_bytes(fitted: FittedModel) -> int:
    """Return the bytes of a model's parameters and optimizer state; 0 if they are memory-mapped."""
    if isinstance(fitted.params, CompactParams):
        return 0
    return resident(fitted.params) + resident(fitted.optimizer and fitted.optimizer.state)


def resident(array: np.ndarray | None) -> int:
    """Return the bytes of an array; 0 for None, a memory map, and a broadcast array."""
    return 0 if array is None or 0 in array.strides or _is_mapped(array) else array.nbytes


def allowed() -> int:
    """Return the most bytes that an estimate may reach."""
    return int(SHARE * memory_limit())


def memory_limit() -> int:
    """Return the bytes that this process may use: the physical memory, or the limit of its control group."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else []
    for file in _limit_files():
        text = _text_of(file).strip()
        if text.isdigit():
            limits.append(int(text))
    return min(limits, default=1 << 62)


def _limit_files() -> list[Path]:
    """Return the files that may hold the memory limit of our control group, version 1 or 2, or of its parents."""
    root = Path("/sys/fs/cgroup")
    names = {"": "memory.max", "memory": "memory.limit_in_bytes"}  # by controllers; version 2 names none
    files = [root / controllers / name for controllers, name in names.items()]
    for line in _text_of(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in names:
            own = root / controllers / path.lstrip("/")
            files += [folder / names[controllers] for folder in (own, *own.parents) if root in folder.parents]
    return files


def _text_of(file: Path) -> str:
    """Return the text of a file, or "" if it cannot be read."""
    try:
        return file.read_text()
    except OSError:
        return ""


def _resident_data(dataset: Dataset) -> int:
    """Return the bytes of a data set's arrays that are not memory maps."""
    return sum(resident(array) for rows in (dataset.X, dataset.Y) for array in (rows.indptr, rows.indices, rows.data))


def _landmarks(plan: TrainingPlan, data: TrainingData) -> int:
    """Return the bytes of new landmarks, and of the entries that rows get for them."""
    dense = plan.features.dense
    return 0 if dense is None or data.features.dense is not None else dense.bytes_for(data.all_rows.n_rows)


def _replicas(plan: TrainingPlan) -> int:
    """Return the bytes of the shared parameters, the merge states and the snapshot for trials.

    A single worker without a replica trains the arrays of the model itself, and needs none.
    """
    n, algorithm = len(plan.workers), plan.algorithm
    if n == 1 and algorithm.sharing is not Sharing.REPLICAS:
        return 0
    arrays = worker_arrays([algorithm.sharing.for_worker(worker.shares_memory) for worker in plan.workers])
    network, state = plan.network, state_layout(plan.network.layout, plan.optimizer)
    shape = shared_shape(network.layout.size, state.size, network.n_features, arrays)
    aside = shape.model + shape.states * shape.state if algorithm.has_trials else 0
    return 4 * (shape.floats + algorithm.merge_state_vectors(n) * shape.model + aside)


def _candidates(plan: TrainingPlan, data: TrainingData) -> int:
    """Return the bytes for learning candidates: damped and scaled rows, index, labels of features, pairs, classifiers.

    A label has weights for the features of its own rows, 8 bytes each, and 16 in a hash table. With
    `Pairs.all_features` there are no more, as small weights are dropped. While the classifiers are solved, a chunk of
    labels has room for all features of its pairs, 8 bytes each. The system takes only the pages that are written, of up
    to 2 MB (35 to 45 MB of 67 MB in an earlier version), so that 5 bytes each are estimated.
    """
    if not plan.n_candidates:
        return 0
    # Imported here, so that creating an estimator does not import Numba.
    from ..candidates.cooccurrence import N_COOCCURRING_IN_TRAINING, N_LABELS
    from ..candidates.linear import CHUNK, CHUNKS, max_weights, n_random_negatives
    from ..candidates.model import n_in_prediction

    X, Y = data.all_rows.X, data.all_rows.Y
    every = X.n_cols * Y.n_cols
    by_row = np.diff(X.indptr) * np.diff(Y.indptr)
    own, most = int(by_row.sum()), MOST_PER_ENTRY * X.nnz + int(by_row.max())  # a single row may have most labels
    weights = min(own, every, most, max_weights(X))
    listed = plan.n_candidates + N_COOCCURRING_IN_TRAINING
    pairs = Y.nnz + X.n_rows * listed
    pairs += n_random_negatives(pairs, Y.n_cols) * Y.n_cols
    room = min(CHUNK, pairs * X.nnz // X.n_rows // CHUNKS, every)
    held_out = plan.held_out_size.of(X.n_rows) * plan.n_folds
    scored = PAIR_BYTES * held_out * n_in_prediction(plan.n_candidates)
    rows = 16 * X.nnz + 4 * Y.nnz + 4 * pairs + 4 * X.n_rows * listed
    of_features = 8 * min(own, every, N_LABELS * X.n_cols)
    of_label = LABEL_BYTES + LABEL_SCRATCH * plan.n_candidate_threads
    of_labels = Y.n_cols * (of_label + LABEL_BESIDE_NETWORK * plan.concurrent_candidates)
    solving = 5 * room + (8 + 16) * weights + SOLVER_BYTES * plan.n_candidate_threads * X.n_cols
    return rows + of_features + of_labels + solving + scored


def _is_mapped(array: np.ndarray) -> bool:
    """Return whether an array, or the one it is a view of, is a memory map."""
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def readable(size: int) -> str:
    """Return bytes as text, "1.5 GB"."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"


def _gpus(plan: TrainingPlan) -> list[str]:
    """Return the names of the devices with a memory of their own."""
    return sorted({worker.name for worker in plan.workers if worker.kind == "cuda"})
