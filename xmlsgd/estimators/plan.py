"""The training plan: every decision of a run, made before it from the parameters and the data, with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..algorithms.base import Algorithm
from ..data.cores import usable_threads
from ..data.held_out import HELD_OUT_THOROUGH, HeldOutSize
from ..devices.base import Device
from ..errors import DataError
from ..nn.network import Network
from ..nn.optimizers import Optimizer
from ..nn.samplers import ALL_LABELS, Sampler, find_sampler
from ..nn.schedules import Schedule
from . import defaults
from .fitted import FittedModel
from .held_out import held_out_size
from .parameters import Parameters, optimizer_of
from .placement import Worker, algorithm_of, flops, make_device, parse_devices, precision_of, thread_count, workers_of
from .training_data import TrainingData

GIVEN = "as given"


@dataclass(frozen=True)
class Decision:
    """What was decided about a run, and why."""

    name: str
    value: str | float | None
    reason: str


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """How a run goes; `str` of it is a table of decisions, their values and reasons.

    n_candidates : labels per row, 0 for the network alone. concurrent_candidates : whether they are learned while the
    network is trained. held_out : how many rows are held out. algorithm : as given, "auto" until the speeds of several
    workers are measured. precision : as given where not all workers are CPUs.
    """

    network: Network
    optimizer: Optimizer
    schedule: Schedule
    learning_rate: float
    batch_size: int
    sampler: Sampler
    n_candidates: int
    concurrent_candidates: bool
    stacking: str
    held_out: HeldOutSize
    algorithm: str | Algorithm
    workers: tuple[Worker, ...]
    n_threads: int
    precision: str
    average_weights: float
    early_stopping: bool
    n_epochs_no_change: int
    tol: float
    verbose: bool
    decisions: tuple[Decision, ...]

    def __str__(self) -> str:
        rows = [("decision", "value", "reason"), *((d.name, str(d.value), d.reason) for d in self.decisions)]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {reason}" for name, value, reason in rows)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return {decision: {"value": ..., "reason": ...}}, ready for JSON."""
        return {d.name: {"value": d.value, "reason": d.reason} for d in self.decisions}

    def new_device(self) -> Device:
        """Return the first worker's device, with all threads: it trains where it is the only one, and measures."""
        return make_device(self.workers[0].name, self.n_threads, self.precision)

    @property
    def equal_algorithm(self) -> Algorithm:
        """The algorithm of all workers, before any is excluded."""
        return algorithm_of(self.algorithm, self.batch_size, 1.0, list(self.workers))


def make_plan(
    given: Parameters, data: TrainingData, earlier: FittedModel | None = None, adds_rows: bool = False
) -> TrainingPlan:
    """Decide how to train on `data`; nothing is trained.

    earlier : the model that training goes on from. adds_rows : whether it keeps the rows that it knows and learns these
    as well, as in `partial_fit`, where its network may grow.
    """
    before = None if earlier is None else earlier.network
    remembered = earlier if adds_rows else None
    n_rows, n_labels = data.dataset.n_rows, data.dataset.n_labels
    n_weighted = data.n_rows if data.weight is None else np.count_nonzero(data.weight[: data.n_rows])
    made: list[Decision] = []

    def decided(name: str, value: Any, reason: str) -> Any:
        made.append(Decision(name, value if isinstance(value, str | int | float) else str(value), reason))
        return value

    optimizer = optimizer_of(given)
    loss = _loss(given, data, before)
    n_candidates, why_listed = (
        (0, "partial_fit keeps those of the model") if adds_rows else _candidates(given, data, loss)
    )
    network = _network(given, data, loss, before)
    decided(
        "hidden_layer_sizes", network.hidden, _why(given.hidden_layer_sizes, "goes on" if earlier else "the default")
    )
    decided("loss", network.loss, _why(given.loss, f"labels are {data.form}" if earlier is None else "goes on"))
    decided("optimizer", given.optimizer, GIVEN)
    own = given.algorithm if isinstance(given.algorithm, Algorithm) else None
    batch_size = decided("batch_size", *_batch_size(given, n_rows, own, n_candidates > 0))
    is_short = n_candidates > 0 and given.max_epochs == "auto"
    is_low = remembered is not None and remembered.of_fit
    learning_rate = decided("learning_rate_init", *_learning_rate(given, optimizer, own, batch_size, is_short, is_low))
    decided("candidates", n_candidates, why_listed)
    stacking = given.stacking if n_candidates else "quick"
    if not adds_rows and given.stacking == "thorough":
        _check_thorough(n_candidates, n_weighted)
    if n_candidates:
        decided("stacking", stacking, GIVEN)
    held_out = held_out_size(network.loss, data.form, n_candidates, stacking)
    learners = "stacking, thresholds" if n_candidates else "calibration, thresholds"
    decided("held_out_rows", 0 if adds_rows else held_out.of(n_weighted), f"of {n_weighted}, for {learners}")
    decided("groups", *_groups(data))
    if data.n_label_rows:
        used = ", where held-out rows agree, candidates" if n_candidates else ""
        decided("label_rows", data.n_label_rows, f"labels whose text has known words; for the network{used}")
    beside_candidates = n_candidates > 0 or (remembered is not None and remembered.candidates is not None)
    n_negatives, why = _negatives(given, beside_candidates, n_labels)
    kind = "all" if n_negatives is None else "uniform" if given.sampler == "auto" else given.sampler
    decided("sampler", kind, _why(given.sampler, "uniform where negatives are drawn"))
    decided("negatives", n_labels if n_negatives is None else n_negatives, why)
    found = defaults.auto_epochs(n_rows, batch_size, n_candidates > 0)
    epochs = found if given.max_epochs == "auto" else int(given.max_epochs)
    steps = math.ceil(n_rows / batch_size)
    decided("max_epochs", epochs, _why(given.max_epochs, f"{steps} steps an epoch"))
    # Backward takes two products for each one forward.
    several = len(parse_devices(given.devices)) > 1
    n_threads = thread_count(given.n_jobs, math.inf if several else 3 * flops(network, data.dataset.X, batch_size))
    workers = tuple(workers_of(given.devices, n_threads))
    decided("n_jobs", n_threads, GIVEN if given.n_jobs is not None else "as many threads as a step can feed")
    decided("devices", given.devices, GIVEN)
    concurrent = n_candidates > 0 and not several and _uses_all_cores(given.n_jobs, n_threads)
    if n_candidates:
        beside = "while the network is trained, on as many threads"
        after = "several workers train the network" if several else "n_jobs leaves cores free"
        decided("concurrent_candidates", concurrent, beside if concurrent else after)
    rounding, why = _rounding(given, n_labels, network.loss, optimizer, workers)
    network = replace(network, gradient_rounding=decided("gradient_rounding", rounding, why))
    precision = given.precision
    if all(worker.kind == "cpu" for worker in workers):
        precision = precision_of(make_device("cpu", 1, given.precision))
    decided("precision", precision, _why(given.precision, "the fastest of this processor"))
    plan = TrainingPlan(
        network, optimizer, Schedule(epochs, given.learning_rate, given.warm_up), learning_rate, batch_size,
        ALL_LABELS if n_negatives is None else find_sampler(kind).of(n_negatives), n_candidates, concurrent,
        stacking, held_out, given.algorithm, workers, n_threads, precision, float(given.average_weights),
        bool(given.early_stopping), int(given.n_epochs_no_change), float(given.tol), bool(given.verbose), (),
    )  # fmt: skip
    alone = "one worker" if len(workers) == 1 else "until the speeds of the workers are measured"
    plan.equal_algorithm  # checks an algorithm that is given  # noqa: B018
    decided("algorithm", given.algorithm, _why(given.algorithm, alone))
    return replace(plan, decisions=tuple(made))


def _why(given: Any, reason: str) -> str:
    """Return why a parameter has its value: `reason` where it was "auto"."""
    return reason if isinstance(given, str) and given == "auto" else GIVEN


def _groups(data: TrainingData) -> tuple[int, str]:
    """Return how many groups of rows there are, and what is assumed of new rows."""
    if data.groups is None:
        return 0, "none given: rows are assumed independent, and new ones like these"
    return len(np.unique(data.groups)), "held out as a whole: new rows are assumed to be of new groups"


def _loss(given: Parameters, data: TrainingData, earlier: Network | None) -> str:
    """Return the loss by name; one that goes on stays."""
    if earlier is None:
        return given.loss if given.loss != "auto" else "softmax" if data.form == "multiclass" else "bce"
    if given.loss not in ("auto", earlier.loss):
        raise DataError(f"loss: must stay {earlier.loss!r} when learning goes on, got {given.loss!r}")
    return earlier.loss


def _network(given: Parameters, data: TrainingData, loss: str, earlier: Network | None) -> Network:
    """Return the network for the rows; one that goes on keeps its hidden layers and its scale."""
    wanted, dataset = given.hidden_layer_sizes, data.dataset
    if isinstance(wanted, str):
        wanted = earlier.hidden if earlier else defaults.HIDDEN
    hidden = tuple(int(size) for size in wanted)
    drops: dict[str, Any] = {"input_dropout": float(given.input_dropout), "hidden_dropout": float(given.hidden_dropout)}
    if earlier is None:
        scale = defaults.input_scale(dataset.X)
        return Network(dataset.n_features, dataset.n_labels, hidden, loss, **drops, input_scale=scale)
    if earlier.hidden != hidden:
        raise DataError(f"hidden_layer_sizes: must stay {earlier.hidden} when learning goes on, got {hidden}")
    return replace(earlier, n_features=dataset.n_features, n_labels=dataset.n_labels, **drops)


def _learning_rate(
    given: Parameters, optimizer: Optimizer, own: Algorithm | None, batch_size: int, is_short: bool, is_low: bool
) -> tuple[float, str]:
    if own is not None:
        return own.learning_rate, "the algorithm's"
    if given.learning_rate_init == "auto":
        return defaults.auto_rate(optimizer, batch_size, is_short, is_low)
    return float(given.learning_rate_init), GIVEN


def _batch_size(given: Parameters, n_rows: int, own: Algorithm | None, listed: bool) -> tuple[int, str]:
    if own is not None:
        return min(own.batch, n_rows), "the algorithm's"
    if given.batch_size == "auto":
        return defaults.auto_batch_size(n_rows, listed), f"{n_rows} rows"
    return min(int(given.batch_size), n_rows), GIVEN


def _candidates(given: Parameters, data: TrainingData, loss: str) -> tuple[int, str]:
    """Return the candidate labels per row, 0 for the network alone."""
    Y = data.rows.Y
    if given.candidates == "auto":
        found = defaults.auto_candidates(Y, loss, data.form)
        share = defaults.dense_share(data.rows.X) if found else 0.0
        if share > defaults.DENSE:
            return 0, f"{share:.0%} of X lies in dense features"
        return found, f"{Y.n_rows} rows, {Y.n_cols} labels, {Y.nnz} true pairs"
    if given.candidates and data.form == "multiclass":
        raise DataError(f"candidates: must be 0 for one class a row, got {given.candidates}; it is for sets of labels")
    return min(int(given.candidates), Y.n_cols), GIVEN


def _check_thorough(n_candidates: int, n_rows: int) -> None:
    """Raise `DataError` where there are no candidates to stack, or too few rows of a weight above 0."""
    if not n_candidates:
        raise DataError("stacking: 'thorough' needs candidates, got none here; pass candidates=64 or 'quick'")
    if not HELD_OUT_THOROUGH.of(n_rows):
        least = round(HELD_OUT_THOROUGH.least / HELD_OUT_THOROUGH.share)
        raise DataError(f"stacking: 'thorough' needs {least} rows of a weight above 0, got {n_rows}; pass 'quick'")


def _negatives(given: Parameters, has_candidates: bool, n_labels: int) -> tuple[int | None, str]:
    """Return how many labels are drawn for a batch besides its own, None for all."""
    wanted, why = given.negatives, GIVEN
    if given.sampler == "all":
        return None, "sampler='all'"
    if wanted == "auto" and given.sampler != "auto":
        wanted, why = defaults.NEGATIVES, f"sampler={given.sampler!r}"
    elif wanted == "auto" and has_candidates:
        wanted, why = defaults.CANDIDATE_NEGATIVES, "beside candidates"
    if isinstance(wanted, str):
        return None, _why(wanted, "without candidates")
    return (None, "no more labels than these") if wanted >= n_labels else (int(wanted), why)


def _uses_all_cores(n_jobs: int | None, n_threads: int) -> bool:
    """Return whether no core is to be left free; there must be several."""
    return usable_threads() > 1 and (n_jobs is None or n_threads >= usable_threads())


def _rounding(
    given: Parameters, n_labels: int, loss: str, optimizer: Optimizer, workers: tuple[Worker, ...]
) -> tuple[float, str]:
    """Return the threshold of gradients."""
    if given.gradient_rounding == "auto":
        found = defaults.auto_rounding(n_labels, loss, optimizer, [worker.kind for worker in workers])
        return found, f"{loss} by {type(optimizer).__name__}, {n_labels} labels"
    gpu = next((worker.name for worker in workers if worker.kind == "cuda"), None)
    if given.gradient_rounding and gpu:
        raise DataError(f"gradient_rounding: must be 'auto' or 0 on a GPU, got {given.gradient_rounding} and {gpu!r}")
    return float(given.gradient_rounding), GIVEN
