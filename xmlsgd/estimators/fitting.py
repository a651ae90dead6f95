"""From a plan and rows to a fitted model: pure functions, which leave an earlier model as it is."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..errors import DataError, DivergenceError, counted, shorten, warn
from ..nn.network import Network, state_layout
from ..nn.parameters import Layout, zeros
from ..training.callbacks import Callback, EarlyStopping, Evaluation
from ..training.checkpoints import Checkpoint, checksum_of_rows, read_checkpoint
from ..training.learner import Job, Start
from ..training.loop import train
from ..training.progress_bar import ProgressBar
from ..training.rollback import LastGoodModel
from ..training.run import Run, add_hint, attach_run, run_of
from .fitted import FittedModel, OptimizerState
from .held_out import folds_to_hold_out, weight_without, with_calibration_of, with_thresholds
from .inference import Measure
from .parameters import random_state_of
from .placement import algorithm_of, executor_of, make_device, names_of_excluded, precision_of, select_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from sklearn.base import BaseEstimator

    from ..data.csr import CSR
    from ..devices.base import Device
    from ..nn.optimizers import Optimizer
    from ..training.history import EpochRecord
    from .candidate_training import CandidateTraining, Fold
    from .plan import TrainingPlan
    from .training_data import TrainingData

    Keep = Callable[[FittedModel], None]

LARGE_WEIGHT = 100.0  # of a row, which may be why a run diverges


def check_callbacks(callbacks: Any) -> None:
    """Raise `DataError` unless `callbacks` is a list of `Callback`."""
    listed = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    strange = [callback for callback in listed if not isinstance(callback, Callback)]
    if strange or listed is not callbacks:
        raise DataError(f"callbacks: must be a list of Callback objects, got {shorten((strange or listed)[0])}")


def as_checkpoint(given: Any) -> Checkpoint | None:
    """Return the checkpoint that an argument means, which may be a path."""
    return given if given is None or isinstance(given, Checkpoint) else Checkpoint(given)


def draw_seed(model: BaseEstimator, checkpoint: Checkpoint | None = None) -> int:
    """Return a seed of the estimator's `random_state`; where that is None, a run that resumes has one already."""
    if checkpoint and model.random_state is None and (saved := read_checkpoint(checkpoint, verify=False)):
        return saved.seed
    return int(random_state_of(model).randint(np.iinfo(np.int32).max))


def train_model(
    plan: TrainingPlan,
    data: TrainingData,
    earlier: FittedModel | None,
    seed: int,
    keep: Keep,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
) -> FittedModel:
    """Train for all epochs of `plan`, learn candidates, and return the model.

    earlier : the model whose parameters are the first ones, None to begin anew. keep : called with the model as far as
    it came where an error ends training. Raises `DivergenceError` where the first epoch diverges.
    """
    network, device = plan.network, plan.new_device()
    held_out = folds_to_hold_out(data, plan.held_out_size, max(plan.n_folds, 1), seed)
    left_out = held_out[0] if held_out and not plan.n_folds else np.empty(0, np.intp)
    weight = weight_without(data, left_out)

    def fitted_by(run: Run) -> FittedModel:
        counts = data.rows.Y.column_counts()
        return _fitted(plan, data, device, run, earlier, seed, label_counts=counts, n_samples_seen=data.n_rows)

    learned = replace(data, weight=weight)
    with _learn_candidates(plan, data, held_out, device) if plan.n_candidates else nullcontext() as candidates:
        start = first_parameters(network, plan.optimizer, data.dataset.Y, seed, weight)
        first = start.params.copy() if plan.n_folds else None  # to draw them takes as long as an epoch of few rows
        if earlier is not None:
            copy_rows(earlier.network.layout, earlier.float_params, network.layout, start.params)
            start = replace(start, epochs=earlier.n_epochs)
        run = _train(
            plan, learned, device=device, start=start, seed=seed, keep=lambda run: keep(fitted_by(run)),
            callbacks=callbacks, checkpoint=checkpoint,
        )  # fmt: skip
        if run.diverged and checkpoint:
            checkpoint.done()  # the same call would diverge again
        if run.diverged and not run.records:
            raise DivergenceError(divergence_advice(plan, weight, start.epochs + 1))
        fitted = fitted_by(run)
        try:
            folds: list[Fold] = []
            scores = None
            if candidates:
                started = time.perf_counter()
                if plan.n_folds:
                    folds = _score_folds(plan, data, held_out, seed, earlier, run, first, candidates)
                elif len(left_out):
                    folds = [candidates.fold(0, device, run.params)]
                found, scores = candidates.finish(device, folds)
                fitted = replace(fitted, candidates=found, candidates_seconds=time.perf_counter() - started)
            scored_rows = np.concatenate([fold.rows for fold in folds]) if folds else left_out
            fitted = with_thresholds(fitted, data, scored_rows, device, scores)
            if earlier is None and len(left_out):
                _count_held_out(fitted, data, weight)
        except BaseException as error:  # the network alone is a model, too
            keep(fitted)
            attach_run(error, run)
            _hint_at_kept(error, run)
            raise
    if checkpoint:
        checkpoint.done()
    if run.diverged:
        text = f"{divergence_advice(plan, weight, fitted.n_epochs + 1)}; the last good model is kept"
        warn(text, ConvergenceWarning)
    return fitted


class _StopAfter(Callback):
    """Stop after a number of epochs, whatever the schedule says."""

    def __init__(self, n_epochs: int) -> None:
        self.left = n_epochs

    def epoch(self, record: EpochRecord, center: NDArray[np.float32]) -> bool:
        """Count the epoch."""
        self.left -= 1
        return self.left <= 0


def _score_folds(
    plan: TrainingPlan, data: TrainingData, held_out: list[NDArray[np.intp]], seed: int,
    earlier: FittedModel | None, run: Run, first: NDArray[np.float32], candidates: CandidateTraining,
) -> list[Fold]:  # fmt: skip
    """Return each fold of held-out rows, scored beside a network that learns all other rows and is not kept.

    These networks begin anew and learn for as long as the one that is kept: as often as `earlier` has passed over the
    rows, and the epochs of `run`, where the schedule may not have come to its end. A fold whose network diverges is
    left out. first : the starting parameters; their output biases have counted all rows.
    """
    # Records of a call have its first epoch, and count its rows from its start: the last of each call stays.
    rows_before = {record.get("first_epoch"): record.get("rows", 0) for record in earlier.history} if earlier else {}
    n_before = round(sum(rows_before.values()) / data.dataset.n_rows)
    schedule = replace(plan.schedule, epochs=n_before + plan.schedule.epochs)
    plan = replace(plan, schedule=schedule, early_stopping=False, verbose=False)
    network, Y = plan.network, data.dataset.Y
    folds: list[Fold] = []
    for number, rows in enumerate(held_out):
        weight, device, params = weight_without(data, rows), plan.new_device(), first.copy()
        network.layout.views(params)[network.output_bias][:] = network.initial_biases(Y, weight)
        start = Start(params, empty_state(network, plan.optimizer))
        learned = replace(data, weight=weight, validation=None)
        stop = _StopAfter(n_before + len(run.records) - run.n_undone)
        of_fold = _train(plan, learned, device=device, start=start, seed=seed, callbacks=[stop], rolls_back=False)
        if not of_fold.diverged:
            folds.append(candidates.fold(number, device, of_fold.params))
    return folds


def _learn_candidates(*given: Any) -> CandidateTraining:
    """Return `CandidateTraining`, from a module that loads Numba: an estimator is made without."""
    from .candidate_training import CandidateTraining

    return CandidateTraining(*given)


def _count_held_out(fitted: FittedModel, data: TrainingData, weight: NDArray[np.float32] | None) -> None:
    """Add to the output biases, in place, what the held-out rows would have added to the first ones.

    Only after stacking: biases that had counted them before would have told it which labels these rows have.
    """
    network, Y = fitted.network, data.dataset.Y
    biases = network.layout.views(fitted.params)[network.output_bias]
    biases += network.initial_biases(Y, data.weight) - network.initial_biases(Y, weight)


def train_more(
    plan: TrainingPlan, data: TrainingData, earlier: FittedModel | None, seed: int, keep: Keep
) -> FittedModel:
    """Train by a plan that adds rows, from `earlier` if there is one, and return the model.

    Raises `DivergenceError` where the loss is not finite.
    """
    Y, device = data.dataset.Y, plan.new_device()
    if earlier is None:
        start = first_parameters(plan.network, plan.optimizer, Y, seed, data.weight)
    else:
        start = grown(earlier, plan.network, plan.optimizer, Y, data.weight, data.n_label_rows)
    counts, n_rows = data.rows.Y.column_counts(), data.n_rows
    if earlier is not None and earlier.label_counts is not None:
        counts[: len(earlier.label_counts)] += earlier.label_counts
        n_rows += earlier.n_samples_seen
    if earlier is not None and earlier.label_counts is None:  # of a model that was saved without
        counts, n_rows = None, earlier.n_samples_seen

    def fitted_by(run: Run) -> FittedModel:
        candidates = None if earlier is None else earlier.candidates
        if candidates is not None:
            from ..devices.cpu import cpu_of  # here: Numba is loaded late

            cpu = cpu_of(device, plan.n_threads)
            candidates = candidates.with_rows(data.dataset.X, Y, data.weight, data.n_label_rows, cpu)
        fitted = _fitted(plan, data, device, run, earlier, seed, label_counts=counts, n_samples_seen=n_rows)
        state = OptimizerState(plan.optimizer.name, run.state, run.steps)
        fitted = replace(fitted, candidates=candidates, optimizer=state)
        return fitted if earlier is None else with_calibration_of(fitted, earlier)

    run = _train(plan, data, device=device, start=start, seed=seed, keep=lambda run: keep(fitted_by(run)))
    if run.diverged:
        raise DivergenceError(divergence_advice(plan, data.weight, start.epochs + 1))
    return fitted_by(run)


def divergence_advice(plan: TrainingPlan, weight: NDArray[np.float32] | None, epoch: int) -> str:
    """Return what to do about a loss that was not finite in `epoch` (from 1); weight : float32 (n,) of the rows."""
    rate = plan.learning_rate
    at, remedy = f"at learning_rate_init={rate:g}", f"a lower one ({rate / 10:g})"
    if (decay := plan.optimizer.weight_decay) * rate > 1:  # which turns the weights' sign at each step, and more
        at, remedy = f"{at} and weight_decay={decay:g}", f"a weight_decay below {1 / rate:g}"
    elif weight is not None and weight.max() > LARGE_WEIGHT:
        at, remedy = f"{at} and weights of rows up to {weight.max():g}", "weights around 1, a lower rate"
    return f"the loss was not finite in epoch {epoch} {at}; pass {remedy}, clip_norm=1.0, or scale X (rows of norm 1)"


def first_parameters(
    network: Network, optimizer: Optimizer, Y: CSR, seed: int, weight: NDArray[np.float32] | None
) -> Start:
    """Return a model with starting parameters (`Network.initialize`) and an empty optimizer state."""
    flat = zeros(network.layout.size)
    network.initialize(flat, Y, seed, weight)
    return Start(flat, empty_state(network, optimizer))


def empty_state(network: Network, optimizer: Optimizer) -> NDArray[np.float32]:
    """Return an empty optimizer state."""
    return zeros(state_layout(network.layout, optimizer).size)


def grown(
    earlier: FittedModel,
    network: Network,
    optimizer: Optimizer,
    Y: CSR,
    weight: NDArray[np.float32] | None,
    n_label_rows: int = 0,
) -> Start:
    """Return a copy of `earlier` as a model of `network`, which may have more features and labels.

    What is new starts as in a new model; output biases of labels without rows so far start at their frequencies among
    all rows but the last `n_label_rows`, unless a label text has taught a higher one. The optimizer's state is kept
    where there is one, of the same optimizer.
    """
    old, flat, state = earlier.network, zeros(network.layout.size), empty_state(network, optimizer)
    if old.layout == network.layout:
        start = Start(flat, state, origin=earlier.float_params)
    else:  # output weights of new labels are zero
        start = Start(flat, state)
        mixed = np.random.SeedSequence((earlier.seed, old.n_features, network.n_features)).generate_state(1)
        network.initialize_features(flat, old.n_features, int(mixed[0]))
        network.layout.views(flat)[network.output_bias][:] = network.initial_biases(Y, weight)
    copy_rows(old.layout, earlier.float_params, network.layout, start.params)
    if earlier.label_counts is not None:
        n_rows = Y.n_rows - n_label_rows
        counts = Y.span(0, n_rows).column_counts()
        fresh = np.ones(network.n_labels, bool)
        fresh[: old.n_labels] = earlier.label_counts == 0
        biases = network.layout.views(start.params)[network.output_bias]
        found = network.biases_of(counts, earlier.n_samples_seen + n_rows)
        # Training without rows only lowers a bias: one above that of no row was taught by a label text. How many rows
        # were label texts only candidates know.
        n_before = earlier.n_samples_seen if earlier.candidates is None else earlier.candidates.knn.Y.n_rows
        known, known_found = biases[: old.n_labels], found[: old.n_labels]
        taught = known > network.biases_of(np.zeros(1), n_before)
        np.maximum(known, known_found, out=known_found, where=taught)
        biases[fresh] = found[fresh]
    if earlier.optimizer is None or earlier.optimizer.name != optimizer.name:
        return replace(start, epochs=earlier.n_epochs)
    layouts = [state_layout(layout, optimizer) for layout in (old.layout, network.layout)]
    copy_rows(layouts[0], earlier.optimizer.state, layouts[1], start.state)
    return replace(start, steps=earlier.optimizer.steps, epochs=earlier.n_epochs)


def copy_rows(old: Layout, source: NDArray[np.float32], new: Layout, target: NDArray[np.float32]) -> None:
    """Copy every tensor of `source` to the first rows of its larger namesake: features and labels are rows."""
    views = new.views(target)
    for name, tensor in old.views(source).items():
        views[name][: len(tensor)] = tensor


def _fitted(
    plan: TrainingPlan,
    data: TrainingData,
    device: Device,
    run: Run,
    earlier: FittedModel | None,
    seed: int,
    **counts: Any,
) -> FittedModel:
    """Return the model that a run has trained, without candidates."""
    return FittedModel(
        network=plan.network,
        params=run.params,
        names=np.arange(len(data.names)) if isinstance(data.names, range) else data.names,
        form=data.form if earlier is None else earlier.form,
        features=data.features,
        device=plan.workers[0].name,
        precision=precision_of(device),
        seed=seed,
        history=[*(earlier.history if earlier else []), *run.records],
        n_epochs=(earlier.n_epochs if earlier else 0) + len(run.records),
        **counts,
    )


def _train(
    plan: TrainingPlan,
    data: TrainingData,
    *,
    device: Device,
    start: Start,
    seed: int,
    keep: Callable[[Run], None] | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
    rolls_back: bool = True,
) -> Run:
    """Train from `start`, whose arrays change in place, and return the run; `keep` gets what an error leaves of it."""
    job = Job(data.dataset, plan.network, plan.optimizer, seed, data.weight, start, plan.sampler)
    workers = select_workers(plan.algorithm, job, list(plan.workers), plan.precision, plan.batch_size)
    if workers[0].name != plan.workers[0].name:
        device = make_device(workers[0].name, workers[0].n_threads, plan.precision)
    algorithm = algorithm_of(plan.algorithm, plan.batch_size, plan.learning_rate, workers)
    executor = executor_of(workers, device, plan.precision)
    with closing(LastGoodModel()) as snapshot, ProgressBar() if plan.verbose else nullcontext() as bar:
        watching = _own_callbacks(plan, data, device, snapshot, checkpoint)
        watching += [*([bar] if bar else []), *callbacks]
        try:
            with device.start():
                trained = train(job, algorithm, executor, plan.schedule, watching, checkpoint, rolls_back=rolls_back)
        except BaseException as error:
            if excluded := names_of_excluded(list(plan.workers), workers):
                add_hint(error, f"{excluded} was excluded; go on with it alone in devices")
            if keep and (run := run_of(error)):
                keep(run)
                _hint_at_kept(error, run)
            raise
    trained.n_undone = sum(each.waited for each in watching if isinstance(each, EarlyStopping))
    return trained


def _hint_at_kept(error: BaseException, run: Run) -> None:
    """Add to an error that ended training what is kept, and what can be done with it."""
    kept = f"what was learned until then is kept, {counted(len(run.records), 'whole epoch')} of this run"
    add_hint(error, f"{kept}; save it, or go on from it by partial_fit or by fit with warm_start=True")


def _own_callbacks(
    plan: TrainingPlan, data: TrainingData, device: Any, snapshot: LastGoodModel, checkpoint: Checkpoint | None
) -> list[Callback]:
    """Return measuring and stopping, in the order in which they change records and model."""
    if data.validation is None:
        return []
    # The rows that decide when a run with a checkpoint stops tell it from others.
    rows = checksum_of_rows(data.validation) if checkpoint and plan.early_stopping else ""
    found: list[Callback] = [Evaluation(Measure(data.validation, plan.network, device), rows)]
    if plan.early_stopping:
        found.append(EarlyStopping("P@1", plan.n_epochs_no_change, 100 * plan.tol, snapshot))
    return found
