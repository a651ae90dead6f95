"""Train a fitted model from a plan and rows; an earlier model does not change."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from ..devices.base import Device
from ..errors import DataError, DivergenceError, add_note, counted, shorten, warn
from ..training.callbacks import Callback, EarlyStopping, Evaluation
from ..training.checkpoints import Checkpoint, checksum_of_rows, read_checkpoint
from ..training.history import EpochRecord
from ..training.job import Job, Start
from ..training.kept_model import KeptModel
from ..training.loop import Run, run_of, train
from ..training.progress_bar import ProgressBar
from .calibrated_model import calibrated, with_calibration_of
from .fitted import FittedModel, OptimizerState
from .held_out import folds_to_hold_out
from .inference import Measure
from .initial_model import copy_rows, empty_state, grown_start, initial_start
from .new_outputs import train_new_outputs
from .parameters import random_state_of
from .plan import TrainingPlan
from .training_data import TrainingData
from .workers import executor_of, precision_of

if TYPE_CHECKING:  # it imports Numba, which creating an estimator does not need
    from ..candidates import HeldOutScores
    from .candidate_training import CandidateTraining, ScoredFold

Keep = Callable[[FittedModel], None]

LARGE_WEIGHT = 100.0  # a larger weight of a row may be the reason if a run diverges


def check_callbacks(callbacks: Any) -> None:
    """Raise `DataError` unless `callbacks` is a list of `Callback`."""
    listed = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    strange = [callback for callback in listed if not isinstance(callback, Callback)]
    if strange or listed is not callbacks:
        raise DataError(f"callbacks: must be a list of Callback objects, got {shorten((strange or listed)[0])}")


def as_checkpoint(given: Any) -> Checkpoint | None:
    """Return the `Checkpoint` of an argument that may be a path or None."""
    return given if given is None or isinstance(given, Checkpoint) else Checkpoint(given)


def draw_seed(model: BaseEstimator, checkpoint: Checkpoint | None = None) -> int:
    """Draw a seed from the estimator's `random_state`; if that is None, return that of the run to resume, if any."""
    if checkpoint and model.random_state is None and (saved := read_checkpoint(checkpoint, verify=False)):
        return saved.seed
    return int(random_state_of(model).randint(np.iinfo(np.int32).max))


class Fitting:
    """A call of `fit` or `partial_fit`: its plan and rows, and the rows that are held out.

    earlier : the model whose parameters are the initial ones; None to start from new ones. keep : called with the
    trained model, or with what was learned so far if an error ends training.
    """

    def __init__(
        self, plan: TrainingPlan, data: TrainingData, earlier: FittedModel | None, seed: int, keep: Keep
    ) -> None:
        self.plan, self.data, self.earlier, self.seed, self.keep = plan, data, earlier, seed, keep
        self.device = plan.new_device()
        self.folds = folds_to_hold_out(data, plan.held_out_size, plan.n_folds, seed)
        # The kept network leaves out the first fold, or none; a temporary network leaves out each of the others.
        n_folds_left_out = plan.n_folds - plan.n_temporary_networks
        self.temporary_folds = range(n_folds_left_out, len(self.folds))
        self.left_out = np.concatenate([np.empty(0, np.intp), *self.folds[:n_folds_left_out]])
        self.weight = data.weight_without(self.left_out)
        self.initial_params: NDArray[np.float32] | None = None  # from which temporary networks start
        self.n_undone = 0  # epochs of the kept network that early stopping has undone

    def train(self, callbacks: Sequence[Callback] = (), checkpoint: Checkpoint | None = None) -> None:
        """Train for all epochs of the plan, learn candidates, and keep the model.

        Raises `DivergenceError` if the first epoch diverges.
        """
        plan, earlier = self.plan, self.earlier
        with self._candidate_training() as candidates:
            start = initial_start(plan, self.data.all_rows.Y, self.seed, self.weight)
            if self.temporary_folds:  # drawing them again would take as long as an epoch.
                self.initial_params = start.params.copy()
            if earlier is not None:
                copy_rows(earlier.network.layout, earlier.float_params, plan.network.layout, start.params)
                start = replace(start, epochs=earlier.n_epochs)
            job = plan.job(self.data.all_rows, self.seed, self.weight, start)
            with closing(KeptModel()) as best, self._keeping(self._fitted):
                own = _own_callbacks(plan, self.data, self.device, best, checkpoint)
                run = _train(plan, job, self.device, [*own, *callbacks], checkpoint)
            stopping = [each for each in own if isinstance(each, EarlyStopping)]
            self.n_undone = 0 if run.diverged else sum(each.waited for each in stopping)
            if run.diverged and checkpoint:
                checkpoint.done()  # the same call would diverge again
            if run.diverged and not run.records:
                raise DivergenceError(divergence_advice(plan, self.weight, start.epochs + 1))
            with self._keeping(self._fitted, run):  # the network can predict alone
                fitted, scored_rows, scores = self._with_candidates(run, candidates)
            with self._keeping(lambda _: fitted, run):
                fitted = calibrated(fitted, self.data, scored_rows, self.device, scores)
        self.keep(fitted)  # first, as Ctrl-C may come while the checkpoint is removed
        if checkpoint:
            checkpoint.done()
        if run.diverged:
            text = f"{divergence_advice(plan, self.weight, fitted.n_epochs + 1)}; the last good model is kept"
            warn(text, ConvergenceWarning)

    def _candidate_training(self) -> AbstractContextManager[CandidateTraining | None]:
        if not self.plan.n_candidates:
            return nullcontext()
        from .candidate_training import CandidateTraining  # here, so that Numba is imported late

        return CandidateTraining(self.plan, self.data, self.folds, self.device)

    def add_rows(self) -> None:
        """Train on rows in addition to those of the earlier model, if there is one, and keep the new model.

        Raises `DivergenceError` if the loss is not finite.
        """
        plan, data, earlier = self.plan, self.data, self.earlier
        if earlier is None:
            start = initial_start(plan, data.all_rows.Y, self.seed, data.weight)
        else:
            start = grown_start(earlier, plan, data.all_rows.Y, data.n_label_rows)
        with self._keeping(self._grown):
            run = _train(plan, plan.job(data.all_rows, self.seed, data.weight, start), self.device)
        if run.diverged:
            raise DivergenceError(divergence_advice(plan, data.weight, start.epochs + 1))
        self.keep(self._grown(run))

    @contextmanager
    def _keeping(self, model_of: Callable[[Run], FittedModel], run: Run | None = None) -> Iterator[None]:
        """If an error ends this context, keep the model of `run`, or of what the run that the error ended had learned.

        A note on the error says so.
        """
        try:
            yield
        except BaseException as error:
            if learned := run or run_of(error):
                self.keep(model_of(learned))
                epochs = counted(len(learned.records), "whole epoch")
                kept = f"what was learned until then is kept, {epochs} of this run"
                add_note(error, f"{kept}; save it, or continue from it by partial_fit or by fit with warm_start=True")
            raise

    def _grown(self, run: Run) -> FittedModel:
        """Return the earlier model as changed by a run; its candidates learn the rows, too."""
        plan, data, earlier = self.plan, self.data, self.earlier
        candidates = None
        if earlier is not None and earlier.candidates is not None:
            from ..devices.cpu import CPU, cpu_of  # here, so that Numba is imported late

            cpu, before = CPU(plan.n_candidate_threads), earlier.candidates
            candidates = before.with_rows(data.all_rows.X, data.all_rows.Y, data.row_weights, data.n_label_rows, cpu)
            is_new, of_network = candidates.knn.new_labels(before.knn), cpu_of(self.device, plan.n_threads)
            train_new_outputs(plan, data, run.params, is_new, self.seed, of_network)
        state = OptimizerState(plan.optimizer.name, run.state, run.updates)
        fitted = replace(self._fitted(run, added_to=earlier), candidates=candidates, optimizer=state)
        return fitted if earlier is None else with_calibration_of(fitted, earlier)

    def _fitted(self, run: Run, added_to: FittedModel | None = None) -> FittedModel:
        """Return the model of a run, without candidates; added_to : a model whose training rows count, too."""
        plan, data, earlier = self.plan, self.data, self.earlier
        counts, n_rows = data.learned_labels.column_counts(), data.learned_labels.n_rows
        if added_to is not None:
            counts[: len(added_to.label_counts)] += added_to.label_counts
            n_rows += added_to.n_samples_seen
        return FittedModel(
            network=plan.network,
            params=run.params,
            names=np.arange(data.names.start, data.names.stop) if isinstance(data.names, range) else data.names,
            form=data.form if earlier is None else earlier.form,
            features=data.features,
            device=plan.workers[0].name,
            precision=precision_of(self.device),
            label_counts=counts,
            n_samples_seen=n_rows,
            seed=self.seed,
            history=[*(earlier.history if earlier else []), *run.records],
            n_epochs=(earlier.n_epochs if earlier else 0) + len(run.records),
        )

    def _with_candidates(
        self, run: Run, candidates: CandidateTraining | None
    ) -> tuple[FittedModel, NDArray[np.intp], HeldOutScores | None]:
        """Return the model of a run, with candidates if it has any; the held-out rows; and their scores by stacking."""
        if candidates is None:
            return self._fitted(run), self.left_out, None
        started = time.perf_counter()
        folds = self._score_folds(candidates, run)
        found, scores = candidates.finish(folds)
        if len(self.left_out):
            self._add_held_out_to_biases(run.params)
        fitted = replace(self._fitted(run), candidates=found, candidates_seconds=time.perf_counter() - started)
        scored_rows = np.concatenate([np.empty(0, np.intp), *(fold.rows for fold in folds)])
        return fitted, scored_rows, scores

    def _score_folds(self, candidates: CandidateTraining, run: Run) -> list[ScoredFold]:
        """Return each fold of held-out rows, scored by a network that has not learned them.

        The first fold is scored by the network that is kept, unless this has learned all rows before. Each other fold
        is scored by a temporary network. A fold whose network diverges is left out.
        """
        # All networks first, as the parts of the candidate model that need no network may still be trained meanwhile.
        networks = [(0, self.device, run.params)] if len(self.left_out) else []
        networks += self._temporary_networks(run)
        folds = []
        while networks:  # the last one first; each is freed, as its device keeps the packed output layer
            folds.append(candidates.score_fold(*networks.pop()))
        return folds[::-1]

    def _temporary_networks(self, run: Run) -> Iterator[tuple[int, Device, NDArray[np.float32]]]:
        """Train a network for each of `temporary_folds`; yield the number of the fold, the device and the parameters.

        Such a network learns all other rows. It starts from `initial_params` and learns for as many epochs as the
        network that is kept: those of the earlier model and those of `run`, which may have stopped before the end of
        its schedule.
        """
        # The rows of each earlier call: records count rows from the start of their call, so that its last one counts.
        history = self.earlier.history if self.earlier else []
        rows_before = {record.get("first_epoch"): record.get("rows", 0) for record in history}
        n_before = round(sum(rows_before.values()) / self.data.all_rows.n_rows)
        schedule = replace(self.plan.schedule, epochs=n_before + self.plan.schedule.epochs)
        plan, dataset = replace(self.plan, schedule=schedule, verbose=False), self.data.all_rows
        network = plan.network
        for number in self.temporary_folds:
            assert self.initial_params is not None
            weight = self.data.weight_without(self.folds[number])
            device, params = plan.new_device(), self.initial_params.copy()
            # The output biases in `initial_params` are those of other rows.
            network.layout.views(params)[network.output_bias][:] = network.initial_biases(dataset.Y, weight)
            job = plan.job(dataset, self.seed, weight, Start(params, empty_state(network, plan.optimizer)))
            stop = _StopAfter(n_before + len(run.records) - self.n_undone)
            of_fold = _train(plan, job, device, [stop], rolls_back=False)
            if not of_fold.diverged:
                yield number, device, of_fold.params

    def _add_held_out_to_biases(self, params: NDArray[np.float32]) -> None:
        """Add to the output biases, in place, what the held-out rows would have added to the initial biases.

        This is done after stacking, from which biases that know the labels of held-out rows must be hidden. A network
        that predicts alone keeps its biases: it is the one that the last record and the calibration have measured.
        """
        network, Y = self.plan.network, self.data.all_rows.Y
        biases = network.layout.views(params)[network.output_bias]
        biases += network.initial_biases(Y, self.data.weight) - network.initial_biases(Y, self.weight)


class _StopAfter(Callback):
    """Stop after a number of epochs, before the end of the schedule."""

    def __init__(self, n_epochs: int) -> None:
        self.epochs_left = n_epochs

    def epoch(self, record: EpochRecord, center: NDArray[np.float32]) -> bool:
        """Count the epoch."""
        self.epochs_left -= 1
        return self.epochs_left <= 0


def divergence_advice(plan: TrainingPlan, weight: NDArray[np.float32] | None, epoch: int) -> str:
    """Return an error message that says what to do about a loss that was not finite in `epoch`, counted from 1.

    weight : weights of the rows, float32 (n,), or None.
    """
    rate = plan.learning_rate
    at, remedy = f"at learning_rate_init={rate:g}", f"a lower one ({rate / 10:g})"
    if (decay := plan.optimizer.weight_decay) * rate > 1:  # it overshoots zero: weights change their sign at each step
        at, remedy = f"{at} and weight_decay={decay:g}", f"a weight_decay below {1 / rate:g}"
    elif weight is not None and weight.max() > LARGE_WEIGHT:
        at, remedy = f"{at} and weights of rows up to {weight.max():g}", "weights around 1, a lower rate"
    return f"the loss was not finite in epoch {epoch} {at}; pass {remedy}, clip_norm=1.0, or scale X (rows of norm 1)"


def _train(
    plan: TrainingPlan, job: Job, device: Device, callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None, *, rolls_back: bool = True,
) -> Run:  # fmt: skip
    """Train from the start of the job, whose arrays change in place, and return the run."""
    algorithm, executor = copy.deepcopy(plan.algorithm), executor_of(plan.workers, device, plan.precision)
    with ProgressBar() if plan.verbose else nullcontext() as bar, device.start():
        with_bar = callbacks if bar is None else [*callbacks, bar]
        return train(job, algorithm, executor, plan.schedule, with_bar, checkpoint, rolls_back=rolls_back)


def _own_callbacks(
    plan: TrainingPlan, data: TrainingData, device: Any, kept: KeptModel, checkpoint: Checkpoint | None
) -> list[Callback]:
    """Return the callbacks for evaluation and early stopping, in the order in which they have to be called."""
    if data.validation is None:
        return []
    # With early stopping, the evaluated rows are a part of the identity of a run with a checkpoint.
    checksum = checksum_of_rows(data.validation) if checkpoint and plan.early_stopping else ""
    found: list[Callback] = [Evaluation(Measure(data.validation, plan.network, device), checksum)]
    if plan.early_stopping:
        found.append(EarlyStopping("P@1", plan.n_epochs_no_change, 100 * plan.tol, kept))
    return found
