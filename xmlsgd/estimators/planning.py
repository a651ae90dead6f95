"""Make the training plan: decide all "auto" parameters from the data, and record the reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algorithms.base import Algorithm
from ..algorithms.sequential import Sequential
from ..data.held_out import HELD_OUT_NETWORK, HELD_OUT_NONE, HELD_OUT_SMALL, HELD_OUT_STACKING, HeldOutSize
from ..errors import DataError, warn
from ..nn.network import Network
from ..nn.optimizers import Optimizer
from ..nn.samplers import ALL_LABELS, Sampler, find_sampler
from ..nn.schedules import Schedule
from . import defaults
from .dense_features import DenseFeatures, find_dense_features
from .fitted import FittedModel, are_probabilities
from .inputs import FeatureSpace
from .parameters import is_auto, optimizer_of
from .plan import Decision, TrainingPlan
from .training_data import TrainingData
from .workers import Worker, algorithm_of, flops, precision_of_cpu, thread_count, workers_of

if TYPE_CHECKING:
    from .classifier import XMLClassifier

GIVEN = "as given"
FOLDED_ROWS, MOST_FOLDS = 600, 10  # rows that all folds hold out: more hardly help (docs/decisions/stacking.md)
LANDMARK_ROWS = 1000  # rows whose typical norm counts if landmarks must be found for it, which takes time


@dataclass(frozen=True, eq=False)
class _Planner:
    """The inputs of a plan, and the decisions so far.

    earlier : the model from which training continues, if any. adds_rows : whether its training rows are kept
    (`partial_fit`).
    """

    estimator: XMLClassifier
    data: TrainingData
    earlier: FittedModel | None
    adds_rows: bool
    decisions: list[Decision] = field(default_factory=list)

    def decide(self, name: str, value: Any, reason: str) -> Any:
        """Record a decision; return its value."""
        self.decisions.append(Decision(name, value if isinstance(value, str | int | float) else str(value), reason))
        return value

    @property
    def earlier_network(self) -> Network | None:
        """The network of the earlier model."""
        return None if self.earlier is None else self.earlier.network

    @property
    def has_one_worker(self) -> bool:
        """Whether a single worker trains the network."""
        return len(workers_of(self.estimator.devices, 1)) == 1

    @property
    def own_algorithm(self) -> Algorithm | None:
        """The algorithm if given as an object, which has its own batch size and learning rate; else None."""
        return self.estimator.algorithm if isinstance(self.estimator.algorithm, Algorithm) else None


def make_plan(
    estimator: XMLClassifier, data: TrainingData, earlier: FittedModel | None = None, adds_rows: bool = False
) -> TrainingPlan:
    """Decide how to train on `data`, without training.

    earlier : the model from which training continues, if any. adds_rows : whether the rows are learned in addition to
    those that `earlier` has learned, as in `partial_fit`, where the network may grow.
    """
    planner = _Planner(estimator, data, earlier, adds_rows)
    if data.features.vectorizer is not None:
        planner.decide("vectorizer", repr(data.features.vectorizer), data.features.vectorizer.reason or GIVEN)
    network, n_candidates, features = _plan_model(planner)
    optimizer, batch_size, learning_rate, schedule = _plan_steps(planner, n_candidates)
    held_out, n_folds, n_temporary = _plan_held_out(planner, network.loss, n_candidates)
    sampler = _plan_sampler(planner, n_candidates)
    workers, n_threads = _plan_workers(planner, network, batch_size)
    n_candidate_threads = _plan_candidate_threads(planner, n_candidates)
    concurrent = _plan_concurrency(planner, n_candidates, workers, n_candidate_threads)
    network = _plan_rounding(planner, network, optimizer, workers)
    precision = _plan_precision(planner, workers)
    algorithm = _plan_algorithm(planner, batch_size, learning_rate, workers)
    return TrainingPlan(
        network=network,
        optimizer=optimizer,
        schedule=schedule,
        learning_rate=learning_rate,
        batch_size=batch_size,
        sampler=sampler,
        n_candidates=n_candidates,
        features=features,
        concurrent_candidates=concurrent,
        held_out_size=held_out,
        n_folds=n_folds,
        n_temporary_networks=n_temporary,
        algorithm=algorithm,
        workers=workers,
        n_threads=n_threads,
        n_candidate_threads=n_candidate_threads,
        precision=precision,
        early_stopping=bool(estimator.early_stopping),
        n_epochs_no_change=int(estimator.n_epochs_no_change),
        tol=float(estimator.tol),
        verbose=bool(estimator.verbose),
        decisions=tuple(planner.decisions),
    )


def _plan_model(planner: _Planner) -> tuple[Network, int, FeatureSpace]:
    """Decide the network, the candidate labels per row (0 for the network alone), and how rows are transformed."""
    estimator, data, earlier = planner.estimator, planner.data, planner.earlier
    loss = _loss(planner)
    n_candidates, why = _candidates(planner, loss)
    dense = find_dense_features(data.given_rows.X) if n_candidates and not earlier else None
    if n_candidates and is_auto(estimator.candidates) and (obstacle := _obstacle(data, dense)):
        n_candidates, why, dense = 0, obstacle, None
    if not n_candidates and data.form == "multiclass" and is_auto(estimator.loss) and not earlier:
        loss = "softmax"
    hidden = planner.decide("hidden_layer_sizes", *_hidden(planner, n_candidates))
    features = data.features if earlier else replace(data.features, damped=n_candidates > 0, dense=dense)
    network = _network(planner, loss, hidden, features)
    if_single = " with candidates" if n_candidates and data.form == "multiclass" else ""
    by_labels = "as in the earlier model" if earlier else f"labels are {data.form}{if_single}"
    planner.decide("loss", loss, _why(estimator.loss, by_labels))
    planner.decide("candidates", n_candidates, why)
    if dense:
        planner.decide("landmarks", dense.n_landmarks, f"{len(dense.columns)} dense features")
    return network, n_candidates, features


def _loss(planner: _Planner) -> str:
    """Return the name of the loss: that of an earlier network, or "bce" for "auto"."""
    given, before = planner.estimator.loss, planner.earlier_network
    if before is None:
        return "bce" if is_auto(given) else given
    if not is_auto(given) and given != before.loss:
        raise DataError(f"loss: must stay {before.loss!r} in further training, got {given!r}")
    return before.loss


def _candidates(planner: _Planner, loss: str) -> tuple[int, str]:
    """Return the number of candidate labels per row, which is 0 for the network alone, and why."""
    if planner.adds_rows:
        return 0, "partial_fit keeps those of the model"
    data, given = planner.data, planner.estimator.candidates
    if not is_auto(given):
        return min(int(given), data.given_rows.Y.n_cols), GIVEN
    return defaults.auto_candidates(data.n_learned_rows, data.given_rows.Y, loss)


def _obstacle(data: TrainingData, dense: DenseFeatures | None) -> str:
    """Return what in X keeps candidates from helping, given its dense features; "" for nothing."""
    is_multiclass = data.form == "multiclass"
    if data.features.n_landmarks or (dense and not is_multiclass):
        return ""
    besides = "and a row has one class" if is_multiclass else "without landmarks"
    share = defaults.frequent_share(data.given_rows.X)
    return f"{share:.0%} of X lies in frequent features {besides}" if share > defaults.MOST_FREQUENT_SHARE else ""


def _hidden(planner: _Planner, n_candidates: int) -> tuple[tuple[int, ...], str]:
    """Return the units of the hidden layers, and why; an earlier network keeps them."""
    given, data = planner.estimator.hidden_layer_sizes, planner.data
    if not is_auto(given):
        return tuple(int(size) for size in given), GIVEN
    if planner.earlier_network:
        return planner.earlier_network.hidden, "as in the earlier model"
    return defaults.auto_hidden(data.given_rows, _is_base_model(data, n_candidates))


def _network(planner: _Planner, loss: str, hidden: tuple[int, ...], features: FeatureSpace) -> Network:
    """Return the network for the rows, which `features` will transform.

    An earlier network keeps its hidden layers and input scale; the rows are already transformed for it.
    """
    estimator, dataset, before = planner.estimator, planner.data.all_rows, planner.earlier_network
    dropout = float(estimator.hidden_dropout)
    if before is None:
        n_rows = defaults.NORM_ROWS if features.dense is None else LANDMARK_ROWS
        first = features.transform(dataset.X.span(0, min(dataset.n_rows, n_rows)), estimator.n_jobs)
        return Network(first.n_cols, dataset.n_labels, hidden, loss, dropout, defaults.input_scale(first))
    if before.hidden != hidden:
        raise DataError(f"hidden_layer_sizes: must stay {before.hidden} in further training, got {hidden}")
    return replace(before, n_features=dataset.n_features, n_labels=dataset.n_labels, hidden_dropout=dropout)


def _plan_steps(planner: _Planner, n_candidates: int) -> tuple[Optimizer, int, float, Schedule]:
    """Decide the optimizer, the batch size, the peak learning rate, and the schedule."""
    is_base_model = _is_base_model(planner.data, n_candidates)
    optimizer = optimizer_of(planner.estimator, is_base_model)
    given, why = planner.estimator.optimizer, "with candidates" if is_base_model else "the default"
    planner.decide("optimizer", optimizer.name if is_auto(given) else given, _why(given, why))
    batch_size = planner.decide("batch_size", *_batch_size(planner, n_candidates > 0))
    schedule = _plan_schedule(planner, batch_size, is_base_model)
    rate = _learning_rate(planner, optimizer, batch_size, schedule.epochs if is_base_model else None)
    return optimizer, batch_size, planner.decide("learning_rate_init", *rate), schedule


def _batch_size(planner: _Planner, has_candidates: bool) -> tuple[int, str]:
    """Return the rows of a batch, and why."""
    n_rows = planner.data.all_rows.n_rows
    if planner.own_algorithm is not None:
        return min(planner.own_algorithm.batch, n_rows), "the algorithm's"
    if is_auto(planner.estimator.batch_size):
        return defaults.auto_batch_size(n_rows, has_candidates), f"{n_rows} rows"
    return min(int(planner.estimator.batch_size), n_rows), GIVEN


def _plan_schedule(planner: _Planner, batch_size: int, is_base_model: bool) -> Schedule:
    """Decide the number of epochs and the learning-rate schedule."""
    estimator, dataset = planner.estimator, planner.data.all_rows
    if planner.adds_rows:
        schedule = Schedule(1, "constant", 0.0)
        why_epochs = why = "partial_fit takes one pass"
    else:
        epochs = estimator.max_epochs
        epochs = defaults.auto_epochs(dataset, batch_size, is_base_model) if is_auto(epochs) else int(epochs)
        schedule = Schedule(epochs, estimator.learning_rate, float(estimator.warm_up))
        why_epochs, why = _why(estimator.max_epochs, f"{math.ceil(dataset.n_rows / batch_size)} steps an epoch"), GIVEN
    planner.decide("max_epochs", schedule.epochs, why_epochs)
    planner.decide("learning_rate", schedule.kind, why)
    planner.decide("warm_up", schedule.warm_up, why)
    return schedule


def _learning_rate(planner: _Planner, optimizer: Optimizer, batch_size: int, epochs: int | None) -> tuple[float, str]:
    """Return the peak learning rate, and why; epochs : number of epochs if the network is a base model."""
    if planner.own_algorithm is not None:
        return planner.own_algorithm.learning_rate, "the algorithm's"
    if is_auto(planner.estimator.learning_rate_init):
        is_low = planner.adds_rows and planner.earlier is not None and planner.earlier.trained_by_fit
        return defaults.auto_rate(optimizer, batch_size, epochs, is_low)
    return float(planner.estimator.learning_rate_init), GIVEN


def _plan_held_out(planner: _Planner, loss: str, n_candidates: int) -> tuple[HeldOutSize, int, int]:
    """Decide how many rows to hold out for stacking, calibration and thresholds, and in how many folds."""
    data = planner.data
    n_learned = data.n_learned_rows
    held_out, n_folds, n_temporary = HELD_OUT_NONE, 1, 0
    if n_candidates:  # for stacking
        held_out, n_folds, n_temporary = _folds(planner, n_learned)
    elif are_probabilities(loss, data.form) and not planner.adds_rows:  # for calibration
        held_out = HELD_OUT_NETWORK
    if data.validation is not None:
        source = "eval_set, or the validation_fraction of the rows for early stopping"
        planner.decide("validation_rows", data.validation.n_rows, f"{source}; not trained on")
    learners = f"{'stacking, ' if n_candidates else ''}calibration, thresholds{_in_groups(data)}"
    planner.decide("held_out_rows", held_out.of(n_learned) * n_folds, f"of {n_learned}, for {learners}")
    planner.decide("groups", *_groups(data))
    if data.n_label_rows:
        planner.decide("label_rows", data.n_label_rows, "labels whose text has known words")
    return held_out, n_folds, n_temporary


def _folds(planner: _Planner, n_rows: int) -> tuple[HeldOutSize, int, int]:
    """Decide the size of a fold of held-out rows, the number of folds, and that of temporary networks."""
    size, n_folds, n_temporary = HELD_OUT_STACKING, 1, 0
    # Several workers would take long to start for each fold.
    if n_rows <= defaults.SMALL_ROWS and planner.has_one_worker:
        size, n = HELD_OUT_SMALL, HELD_OUT_SMALL.of(n_rows)
        n_folds = min(math.ceil(FOLDED_ROWS / n), MOST_FOLDS) if n else 0
    if planner.earlier is not None:
        n_temporary, why = n_folds, "the earlier model has learned all rows; a temporary network leaves out each fold"
    elif n_folds > 1:
        n_temporary, why = n_folds - 1, "the network leaves out the first, a temporary network each of the others"
    else:
        why = "the network does not learn it" if n_folds else "there are too few rows"
    planner.decide("folds", n_folds, why + _in_groups(planner.data))
    return size, n_folds, n_temporary


def _groups(data: TrainingData) -> tuple[int, str]:
    """Return the number of groups of rows, and what is assumed about new rows."""
    if data.groups is None:
        return 0, "none given: rows are assumed independent, and new ones like these"
    return len(np.unique(data.groups)), "held out as a whole: new rows are assumed to be of new groups"


def _in_groups(data: TrainingData) -> str:
    """Return a note that whole groups are held out, so that a number of rows or folds is only the largest possible."""
    return "" if data.groups is None else "; at most, as groups are held out whole"


def _plan_sampler(planner: _Planner, n_candidates: int) -> Sampler:
    """Decide which labels a batch trains: all, or its true labels and some negatives."""
    estimator, n_labels = planner.estimator, planner.data.all_rows.n_labels
    keeps_candidates = planner.adds_rows and planner.earlier is not None and planner.earlier.candidates is not None
    n_negatives, why = _negatives(planner, n_candidates > 0 or keeps_candidates)
    kind = "all" if n_negatives is None else "uniform" if is_auto(estimator.sampler) else estimator.sampler
    planner.decide("sampler", kind, _why(estimator.sampler, "uniform where negatives are drawn"))
    planner.decide("negatives", n_labels if n_negatives is None else n_negatives, why)
    return ALL_LABELS if n_negatives is None else find_sampler(kind).of(n_negatives)


def _negatives(planner: _Planner, has_candidates: bool) -> tuple[int | None, str]:
    """Return how many negatives are drawn for a batch (None for all labels), and why."""
    estimator, n_labels = planner.estimator, planner.data.all_rows.n_labels
    wanted, why = estimator.negatives, GIVEN
    if estimator.sampler == "all":
        return None, "sampler='all'"
    if is_auto(wanted) and not is_auto(estimator.sampler):
        wanted, why = defaults.NEGATIVES, f"sampler={estimator.sampler!r}"
    elif is_auto(wanted) and has_candidates:
        wanted, why = defaults.CANDIDATE_NEGATIVES, "with candidates"
    if isinstance(wanted, str):
        return None, _why(wanted, "without candidates")
    return (None, "no more labels than these") if wanted >= n_labels else (int(wanted), why)


def _plan_workers(planner: _Planner, network: Network, batch_size: int) -> tuple[tuple[Worker, ...], int]:
    """Decide the workers, and the number of threads that those on the CPU share."""
    estimator = planner.estimator
    # The backward pass has two products for each one of the forward pass.
    work = 3 * flops(network, planner.data.all_rows.X, batch_size) if planner.has_one_worker else math.inf
    n_threads = thread_count(estimator.n_jobs, work)
    why = GIVEN if estimator.n_jobs is not None else "as many threads as a step can feed"
    workers = tuple(workers_of(estimator.devices, n_threads))
    n_used = n_threads
    if len(workers) > 1:
        n_used = sum(worker.n_threads for worker in workers)
        why = f"{n_threads} divided evenly among workers on the CPU, and at least one each"
    planner.decide("n_jobs", n_used, why)
    planner.decide("devices", estimator.devices, GIVEN)
    return workers, n_threads


def _plan_candidate_threads(planner: _Planner, n_candidates: int) -> int:
    """Decide the number of threads that learn candidates."""
    n_threads = thread_count(planner.estimator.n_jobs)
    if n_candidates:
        planner.decide("candidate_threads", n_threads, "all that n_jobs allows")
    return n_threads


def _plan_concurrency(planner: _Planner, n_candidates: int, workers: tuple[Worker, ...], n_threads: int) -> bool:
    """Decide whether candidates are learned, on `n_threads` threads, while the network is trained."""
    if not n_candidates:
        return False
    several, shared = len(workers) > 1, workers[0].kind == "cpu"
    concurrent = not several and n_threads > 1
    during = f"while the network is trained{', which then has at most half of the threads' if shared else ''}"
    after = "several workers train the network" if several else "there is one thread"
    return planner.decide("concurrent_candidates", concurrent, during if concurrent else after)


def _plan_rounding(planner: _Planner, network: Network, optimizer: Optimizer, workers: tuple[Worker, ...]) -> Network:
    """Decide the threshold of gradient sparsification; return the network with it."""
    threshold, n_labels = planner.estimator.gradient_rounding, planner.data.all_rows.n_labels
    why = _why(threshold, f"{network.loss} by {type(optimizer).__name__}, {n_labels} labels")
    gpu = next((worker.name for worker in workers if worker.kind == "cuda"), None)
    if is_auto(threshold):
        threshold = defaults.auto_rounding(n_labels, network.loss, optimizer, [worker.kind for worker in workers])
    elif threshold and gpu:
        raise DataError(f"gradient_rounding: must be 'auto' or 0 on a GPU, got {threshold} and {gpu!r}")
    return replace(network, gradient_rounding=planner.decide("gradient_rounding", float(threshold), why))


def _plan_precision(planner: _Planner, workers: tuple[Worker, ...]) -> str:
    """Decide the precision: "auto" becomes the fastest of the processor if all workers are CPUs."""
    given = planner.estimator.precision
    precision = precision_of_cpu(given) if all(worker.kind == "cpu" for worker in workers) else given
    return planner.decide("precision", precision, _why(given, "the fastest of this processor"))


def _plan_algorithm(planner: _Planner, batch_size: int, learning_rate: float, workers: tuple[Worker, ...]) -> Algorithm:
    """Decide how the workers train together; warn of idle ones."""
    given, n = planner.estimator.algorithm, len(workers)
    algorithm = algorithm_of(given, batch_size, learning_rate, workers)
    value, why, is_sequential = given, GIVEN, type(algorithm) is Sequential
    if is_auto(given):
        value, why = type(algorithm).__name__, algorithm.reason
    elif n == 1 and not is_sequential:
        why = f"{GIVEN}; made for several workers, and there is one"
    elif n > 1 and is_sequential:
        idle = f"one of {n} workers trains, the others are idle"
        warn(f"algorithm: by sequential, {idle}; pass devices={workers[0].name!r} to give it all threads")
        why = f"{GIVEN}; {idle}"
    planner.decide("algorithm", value, why)
    return algorithm


def _why(given: Any, reason: str) -> str:
    """Return why a parameter has its value: `reason` if it was "auto", else that it was given."""
    return reason if is_auto(given) else GIVEN


def _is_base_model(data: TrainingData, n_candidates: int) -> bool:
    """Return whether the network is one of several base models, and not so small that it may be the best of them."""
    return n_candidates > 0 and data.all_rows.n_features + data.all_rows.n_labels > defaults.SMALL_NETWORK
