"""How a classifier learns: from all rows at once, or from more and more of them."""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..errors import DataError, DivergenceError
from ..nn.schedules import Schedule
from ..training.checkpoints import read_checkpoint
from ..training.learner import Start
from ..training.runs import Run, add_hint, raise_with, run_of
from . import memory
from .fitting import Plan, advice, as_checkpoint, check_callbacks, launch, schedule_of
from .gpu_memory import check_gpus
from .growing import begin, begin_state, copy_rows, grow
from .inference.compact import CompactParams
from .names import as_names
from .parameters import check_parameters, random_state_of
from .placement import precision_of
from .predicting import NetworkPredictor
from .targets import check_declared, declared
from .task import Task, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from ..data.csr import CSR
    from ..training.callbacks import Callback
    from ..training.checkpoints import Checkpoint
    from .candidate_training import Listing
    from .classifier import XMLClassifier


class Trainer(NetworkPredictor):
    """The half of `XMLClassifier` that learns."""

    # Parameters.
    average_weights: float
    random_state: Any
    warm_start: bool

    # Learned.
    n_features_in_: int
    optimizer_state_: np.ndarray | None
    history_: list[dict[str, Any]]
    loss_curve_: list[float]
    n_epochs_: int
    n_steps_: int
    candidates_seconds_: float
    _optimizer_kind: str
    _seed: int

    def fit(
        self,
        X: Any,
        y: Any = None,  # without which the error says what is missing
        sample_weight: Any = None,
        eval_set: tuple[Any, Any] | None = None,
        *,
        label_names: Sequence[Any] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | str | PathLike[str] | None = None,
    ) -> XMLClassifier:
        """Learn from X (n, F) and the labels y of its rows; return self.

        `sample_weight` (n,) weighs the rows; `eval_set` (X, Y) is measured after every epoch, P@1, P@3 and P@5 in
        percent in `history_`; `label_names` name the columns of an indicator; `callbacks` watch the run. `checkpoint`,
        a path or a `Checkpoint`, is a folder that takes what was learned so far every ten minutes: where the process
        was killed, the same call in another one goes on from there. It is removed when all is learned. Raises
        `DataError` for input that breaks a rule, `MemoryEstimateError` before a run that would not fit, and
        `DivergenceError` when the loss is not finite in the first epoch; later it warns and keeps the last good model.
        Where an error of whatever kind ends learning (a callback's, a full disk, the last worker that dies, Ctrl-C),
        what was learned until then is kept; where nothing was, the estimator is what it was before.
        """
        check_parameters(self)
        check_callbacks(callbacks)
        checkpoint = as_checkpoint(checkpoint)
        old = self.network_ if self.warm_start and self.__sklearn_is_fitted__() else None
        with self._unless_refused():
            known = self.classes_ if old else None if label_names is None else as_names(label_names, "label_names")
            if old is None:
                self._begin_anew(checkpoint)
            task = prepare(self, X, y, known, old, sample_weight, eval_set, listing=True)
            self._check_memory(task, self._learned_bytes())
            start = replace(
                begin(task.network, task.optimizer, task.dataset.Y, self._seed, task.weight), epochs=self.n_epochs_
            )
            if old is not None:
                copy_rows(old.layout, self.params_, task.network.layout, start.params)
            listing, self.candidates_, self.candidates_seconds_ = _listing(task, self._seed), None, 0.0
            self._count_labels(task.dataset.Y)
            plan = Plan(schedule_of(self, task), callbacks, checkpoint)
            run = self._launch(listing.task if listing else task, start, plan)
            if run.diverged and checkpoint:
                checkpoint.done()  # who goes on from there diverges again
            if run.diverged and not run.records:
                raise DivergenceError(advice(self, task.weight, start.epochs + 1))
            self._keep(task, run, start.epochs)
            if listing:
                started = time.perf_counter()
                try:
                    self.candidates_ = listing.finish(run.params)
                    self.candidates_seconds_ = time.perf_counter() - started
                except BaseException as error:  # noqa: BLE001  the network alone is a model, too
                    raise_with(error, run)
        if checkpoint:
            checkpoint.done()
        if run.diverged:
            text = f"{advice(self, task.weight, self.n_epochs_ + 1)}; the last good model is kept"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> XMLClassifier:
        """Learn from more rows in one pass at a constant rate; return self.

        Columns of X and labels may be added at any time: the model grows and keeps what it learned. `classes`, if
        given, lists all labels: those seen before, those of y, and those that later calls will bring; a label outside
        is an error. The optimizer goes on where the last call, `fit` or `load` left it. A call copies the model once to
        a temporary file, to step back to when the loss is not finite (`DivergenceError`), so that calls with many rows
        cost less than many calls.
        """
        check_parameters(self)
        old = self.network_ if self.__sklearn_is_fitted__() else None
        with self._unless_refused():
            known = declared(self.classes_ if old else None, classes, y)
            if old is None:
                self._begin_anew()
            task = prepare(self, X, y, known, old, sample_weight)
            check_declared(task.labels.classes, None if classes is None else known)
            self._check_memory(task, self._learned_bytes(task))
            if old is None:
                start = begin(task.network, task.optimizer, task.dataset.Y, self._seed, task.weight)
            else:
                start = grow(
                    old, task.network, task.optimizer, self._learned(task), task.dataset.Y, self._seed, task.weight
                )
            counted = getattr(self, "label_counts_", None), getattr(self, "n_samples_seen_", 0)
            self._count_labels(task.dataset.Y, more=old is not None)
            run = self._launch(task, start, Plan(Schedule(1, "constant", 0.0)))
            if run.diverged and (old is None or old.layout != task.network.layout):
                raise DivergenceError(advice(self, task.weight, start.epochs + 1))
            self._keep(task, run, start.epochs)
        if run.diverged:  # the arrays were changed in place: the parameters are back, the optimizer begins anew
            self.label_counts_, self.n_samples_seen_ = counted
            raise DivergenceError(advice(self, task.weight, start.epochs + 1))
        return self

    def _count_labels(self, Y: CSR, more: bool = False) -> None:
        """Count the rows of each label, in addition to those before if there are `more`."""
        counts, n_rows = np.bincount(Y.indices, minlength=Y.n_cols), Y.n_rows
        before = getattr(self, "label_counts_", None)
        if more and before is None:
            return  # of a model that was saved without
        if more and before is not None:
            counts[: len(before)] += before
            n_rows += self.n_samples_seen_
        self.label_counts_, self.n_samples_seen_ = counts, n_rows

    @contextmanager
    def _unless_refused(self) -> Iterator[None]:
        """Leave the model as it was where its input is refused or nothing was learned."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException as error:
            if run_of(error) is None:
                self.__dict__.clear()
                self.__dict__.update(before)
            raise

    def _begin_anew(self, checkpoint: Checkpoint | None = None) -> None:
        """Begin the history, and draw a seed; where `random_state` is None, a run that goes on has one already."""
        self._seed = int(random_state_of(self).randint(np.iinfo(np.int32).max))
        if checkpoint and self.random_state is None and (saved := read_checkpoint(checkpoint, verify=False)):
            self._seed = saved.seed
        self.n_epochs_, self.history_, self.candidates_ = 0, [], None

    def _learned(self, task: Task) -> Start:
        """Return the model to go on with, and the optimizer's state where the optimizer is still of its kind."""
        if self.optimizer_state_ is None:
            raise DataError(
                "partial_fit: the model has no optimizer state; load(path, predict_only=False) reads it, if saved "
                "without predict_only and compact"
            )
        params = _writeable(self.params_)
        if self._optimizer_kind != task.optimizer.name:
            return Start(params, begin_state(self.network_, task.optimizer), 0, self.n_epochs_)
        return Start(params, _writeable(self.optimizer_state_), self.n_steps_, self.n_epochs_)

    def _launch(self, task: Task, start: Start, plan: Plan) -> Run:
        """Train; keep what was learned until an error ends it."""
        try:
            return launch(self, task, start, plan)
        except BaseException as error:
            if run := run_of(error):
                self._keep(task, run, start.epochs)
                add_hint(error, "save it, or go on from it by partial_fit or by fit with warm_start=True")
            raise

    def _keep(self, task: Task, run: Run, epochs: int) -> None:
        """Take the result of a run over; `epochs` were done before it."""
        if epochs == 0:
            self.label_form_ = task.labels.form
        names = task.labels.classes
        self.classes_, self.network_ = np.arange(len(names)) if isinstance(names, range) else names, task.network
        self.params_, self.optimizer_state_, self.n_steps_ = run.params, run.state, run.steps
        self._optimizer_kind, self._scorers = task.optimizer.name, {}
        self.device_, self.precision_ = task.workers[0].name, precision_of(task.device)
        self.history_ = [*self.history_, *run.records]
        self.loss_curve_ = [record["loss"] for record in self.history_]
        self.n_epochs_ = epochs + len(run.records)
        if self.candidates_ is not None and not run.diverged:
            self.candidates_ = self.candidates_.extended(task.dataset.X, task.dataset.Y, task.weight, task.cpu)

    def _learned_bytes(self, task: Task | None = None) -> int:
        """Return the bytes of the model so far, which stays beside a new one; none where `task` goes on in place."""
        if not self.__sklearn_is_fitted__() or isinstance(self._params, CompactParams):  # which is mapped
            return 0
        params, state = self._params, self.optimizer_state_
        if task is not None and self.network_.layout == task.network.layout and params.flags.writeable:
            params = None
            state = None if self._optimizer_kind == task.optimizer.name else state
        return memory.resident(params) + memory.resident(state)

    def _check_memory(self, task: Task, earlier: int) -> None:
        """Raise `MemoryEstimateError` for a task that the process's memory or a GPU's would not hold."""
        memory.check(task, lambda other: self._estimate(other, earlier))
        self._scorers = {}  # the buffers of the last prediction
        check_gpus(task)

    def _estimate(self, task: Task, earlier: int) -> dict[str, int]:
        return memory.estimate(task, self.average_weights > 0, earlier)


def _listing(task: Task, seed: int) -> Listing | None:
    """Return the shortlist to be of a task, if it is to have one."""
    if not task.shortlist_size:
        return None
    from .candidate_training import Listing  # here, so that an estimator can be made without loading Numba

    return Listing.begin(task, seed)


def _writeable(array: np.ndarray) -> np.ndarray:
    """Return an array that may be changed: a copy of a read-only map."""
    return array if array.flags.writeable else array.copy()
