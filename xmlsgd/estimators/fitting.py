"""From a plan and rows to a fitted model; an earlier model stays as it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from ..devices.base import Device
from ..errors import DataError, DivergenceError, counted, shorten, warn
from ..training.callbacks import Callback, EarlyStopping, Evaluation
from ..training.checkpoints import Checkpoint, checksum_of_rows, read_checkpoint
from ..training.history import EpochRecord
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
from .plan import TrainingPlan
from .starting import copy_rows, empty_state, first_parameters, grown
from .training_data import TrainingData

if TYPE_CHECKING:  # it loads Numba: an estimator is made without
    from .candidate_training import CandidateTraining, Fold

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


class Fitting:
    """A call of `fit`: its plan and rows, and which of these are held out.

    earlier : the model whose parameters are the first ones, None to begin anew; it stays as it is. keep : called with
    the model as far as it came where an error ends training.
    """

    def __init__(
        self, plan: TrainingPlan, data: TrainingData, earlier: FittedModel | None, seed: int, keep: Keep
    ) -> None:
        self.plan, self.data, self.earlier, self.seed, self.keep = plan, data, earlier, seed, keep
        self.device = plan.new_device()
        self.held_out = folds_to_hold_out(data, plan.held_out_size, max(plan.n_folds, 1), seed)
        # The rows that the network does not learn: none where each fold is scored beside a network of its own.
        self.left_out = self.held_out[0] if self.held_out and not plan.n_folds else np.empty(0, np.intp)
        self.weight = weight_without(data, self.left_out)

    def train(self, callbacks: Sequence[Callback] = (), checkpoint: Checkpoint | None = None) -> FittedModel:
        """Train for all epochs of the plan, learn candidates, and return the model.

        Raises `DivergenceError` where the first epoch diverges.
        """
        plan, earlier = self.plan, self.earlier
        with self._candidate_training() as candidates:
            start = first_parameters(plan.network, plan.optimizer, self.data.dataset.Y, self.seed, self.weight)
            first = start.params.copy() if plan.n_folds else None  # to draw them takes as long as an epoch of few rows
            if earlier is not None:
                copy_rows(earlier.network.layout, earlier.float_params, plan.network.layout, start.params)
                start = replace(start, epochs=earlier.n_epochs)
            run = _train(
                plan, replace(self.data, weight=self.weight), device=self.device, start=start, seed=self.seed,
                keep=lambda run: self.keep(self._fitted_by(run)), callbacks=callbacks, checkpoint=checkpoint,
            )  # fmt: skip
            if run.diverged and checkpoint:
                checkpoint.done()  # the same call would diverge again
            if run.diverged and not run.records:
                raise DivergenceError(divergence_advice(plan, self.weight, start.epochs + 1))
            fitted = self._complete(run, candidates, first)
        if checkpoint:
            checkpoint.done()
        if run.diverged:
            text = f"{divergence_advice(plan, self.weight, fitted.n_epochs + 1)}; the last good model is kept"
            warn(text, ConvergenceWarning)
        return fitted

    def _candidate_training(self) -> AbstractContextManager[CandidateTraining | None]:
        if not self.plan.n_candidates:
            return nullcontext()
        from .candidate_training import CandidateTraining  # here: Numba is loaded late

        return CandidateTraining(self.plan, self.data, self.held_out, self.device)

    def _fitted_by(self, run: Run) -> FittedModel:
        counts, n_rows = self.data.rows.Y.column_counts(), self.data.n_rows
        return _fitted(
            self.plan, self.data, self.device, run, self.earlier, self.seed, label_counts=counts, n_samples_seen=n_rows
        )

    def _complete(
        self, run: Run, candidates: CandidateTraining | None, first: NDArray[np.float32] | None
    ) -> FittedModel:
        """Return the model of a run with candidates, calibration and thresholds.

        first : the starting parameters, where there are folds.
        """
        fitted, scored_rows, scores = self._fitted_by(run), self.left_out, None
        try:
            if candidates:
                started = time.perf_counter()
                folds = self._score_folds(candidates, run, first)
                if folds:
                    scored_rows = np.concatenate([fold.rows for fold in folds])
                found, scores = candidates.finish(self.device, folds)
                fitted = replace(fitted, candidates=found, candidates_seconds=time.perf_counter() - started)
            fitted = with_thresholds(fitted, self.data, scored_rows, self.device, scores)
            if self.earlier is None and len(self.left_out):
                self._count_held_out(fitted)
        except BaseException as error:  # the network alone is a model, too
            self.keep(fitted)
            attach_run(error, run)
            _hint_at_kept(error, run)
            raise
        return fitted

    def _score_folds(self, candidates: CandidateTraining, run: Run, first: NDArray[np.float32] | None) -> list[Fold]:
        """Return each fold of held-out rows, scored beside a network that has not learned them.

        The only fold is scored beside the network that is kept. Of several, each has a network that learns all other
        rows and is not kept. These networks begin anew and learn for as long as the one that is kept: as often as the
        earlier model has passed over the rows, and the epochs of `run`, where the schedule may not have come to its
        end. A fold whose network diverges is left out.
        """
        if first is None:
            return [candidates.fold(0, self.device, run.params)] if len(self.left_out) else []
        # Records of a call have its first epoch, and count its rows from its start: the last of each call stays.
        history = self.earlier.history if self.earlier else []
        rows_before = {record.get("first_epoch"): record.get("rows", 0) for record in history}
        n_before = round(sum(rows_before.values()) / self.data.dataset.n_rows)
        schedule = replace(self.plan.schedule, epochs=n_before + self.plan.schedule.epochs)
        plan = replace(self.plan, schedule=schedule, early_stopping=False, verbose=False)
        network, Y = plan.network, self.data.dataset.Y
        folds: list[Fold] = []
        for number, rows in enumerate(self.held_out):
            weight, device, params = weight_without(self.data, rows), plan.new_device(), first.copy()
            # The output biases in `first` have counted all rows.
            network.layout.views(params)[network.output_bias][:] = network.initial_biases(Y, weight)
            start = Start(params, empty_state(network, plan.optimizer))
            learned = replace(self.data, weight=weight, validation=None)
            stop = _StopAfter(n_before + len(run.records) - run.n_undone)
            of_fold = _train(
                plan, learned, device=device, start=start, seed=self.seed, callbacks=[stop], rolls_back=False
            )
            if not of_fold.diverged:
                folds.append(candidates.fold(number, device, of_fold.params))
        return folds

    def _count_held_out(self, fitted: FittedModel) -> None:
        """Add to the output biases, in place, what the held-out rows would have added to the first ones.

        Only after stacking: biases that had counted them before would have told it which labels these rows have.
        """
        network, Y = fitted.network, self.data.dataset.Y
        biases = network.layout.views(fitted.params)[network.output_bias]
        biases += network.initial_biases(Y, self.data.weight) - network.initial_biases(Y, self.weight)


class _StopAfter(Callback):
    """Stop after a number of epochs, whatever the schedule says."""

    def __init__(self, n_epochs: int) -> None:
        self.left = n_epochs

    def epoch(self, record: EpochRecord, center: NDArray[np.float32]) -> bool:
        """Count the epoch."""
        self.left -= 1
        return self.left <= 0


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
