"""The estimator: a sparse neural network for multi-label and multi-class data, with scikit-learn's rules."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..engine import Interrupted, Run, WorkersLost
from ..errors import DataError, DivergenceError
from ..learner import Start
from . import memory, saving
from .compact import CompactParams
from .fitting import Plan, advice, check_monitors, launch, plan_of
from .gpu_memory import check_gpus, on_gpus
from .growing import begin, begin_state, copy_rows, grow
from .names import as_names
from .parameters import check_parameters
from .predicting import Predictor
from .targets import check_declared, declared
from .task import Task, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ..history import Monitor
    from ..optimizers import Optimizer
    from ..shortlist import Shortlist
    from .list_learning import Listing


class XMLClassifier(Predictor, BaseEstimator):
    """A neural network with a sparse input layer and a full output layer for up to millions of labels.

    `fit` takes X dense, as scipy sparse matrix or as `CSR` (memory maps are read in place), and labels as

    - an indicator matrix (n, L), scipy sparse, `CSR` or dense; `predict` answers with a scipy CSR array, or densely
      where Y was dense;
    - a list of label lists, names int or str; `predict` answers with a scipy CSR array, columns as in `classes_`;
    - one class a row (1-D); `predict` answers with classes.

    Parameters
    ----------
    hidden_layer_sizes : units of the hidden layers, at least one.
    loss : "bce" (independent labels), "softmax" (labels of a row share its probability), "squared_hinge", or "auto":
        softmax for one class a row, else bce.
    optimizer : "adam", "adagrad", "row_adagrad", "momentum", "sgd", or an `Optimizer` with its own numbers.
    learning_rate_init : the rate at the start; "auto" for what suits the optimizer (Adam: 6e-3).
    learning_rate : how it falls over the run: "linear", "cosine", "constant", "inverse_sqrt".
    warm_up : share of the run, in [0, 1), over which the rate rises from zero.
    batch_size : rows a step; "auto" for 256, less on less than 16,384 rows.
    negatives : how many labels besides its own true ones a batch trains, drawn anew for each, or "all". With 16,000
        labels, 1,024 make an epoch several times as fast at nearly the same precision; "auto" for that beside a
        shortlist, else all.
    gradient_rounding : threshold in [0, 1), times a row's weight. A smaller gradient of a label that the row lacks is
        rounded at random, to the threshold or to nothing, which keeps its mean (gradient sparsification); a label that
        keeps none in a batch is not updated, nor are its weights decayed. Twice as fast at the same precision, not for
        GPUs. "auto" for 0.1 with BCE by Adam, where 1,000 labels or more are trained or drawn; 0 for exact gradients.
    shortlist : how many labels come into question for a row, those of its nearest training rows. On them, what these
        neighbors say and a linear path from features to labels are weighed together with the network (see
        `docs/shortlist.md`). 0 for the network alone; "auto" for 64 where `fit` sees 2,000 rows or more and 64
        times as many labels as a row has on average.
    blend : how what the paths of a shortlist say is weighed together, learned from rows that are held out: "logistic",
        a regression, from 2 % of the rows (at least 400 or a tenth), or "boosted", gradient-boosted trees that also see
        how frequent a label is, from 10 % of 10,000 rows or more; more accurate by up to half a point at P@1,
        for a little more time.
    max_epochs : passes over the rows; "auto" for 10, more where that would be fewer than 600 steps; beside a shortlist
        as many as make 500 steps.
    weight_decay, clip_norm : see `Optimizer`; for an optimizer given by name.
    input_dropout, hidden_dropout : shares in [0, 1) left out in training.
    average_weights : share of the run, in [0, 1], whose models are averaged at its end; not with early_stopping.
    early_stopping : stop when P@1 on `eval_set`, or on a `validation_fraction` of the rows, has not risen by more
        than `tol` (a fraction) for `n_epochs_no_change` epochs; the best model is kept.
    class_weight : None, "balanced" or {class: weight}, 1 where none is given; for one class a row. Rows of a class of
        weight 0 are not learned.
    algorithm : how several workers learn together: a name, with options (docs/algorithms.md) or without, or an
        `Algorithm` with a batch size and a rate of its own; "auto" for what suits their speeds.
    devices : who works: "cpu", or several as in "cpu*2", each a process, or a thread where all are GPUs; the
        threads of `n_jobs` are shared out.
    precision : of the matrix products, "float32", "bfloat16", or "auto" for the faster one of this processor.
    n_jobs : threads, at most one a core; None for as many as the work can feed, -1 for all cores, -2 for all but one.
        With one, a seed gives the same bits.
    warm_start : begin `fit` with the parameters of the last one. Either way the earlier model stays in memory, and is
        what the estimator goes back to if `fit` fails.
    random_state : seed of weights, row order and dropout. verbose : 1 for a progress bar on a terminal.

    Attributes
    ----------
    classes_ (L,) names of the label columns; n_features_in_; feature_names_in_ where X had them; params_, float32,
    the flat parameters (`Network.layout`); history_, one record an epoch, whose `rows` and `seconds` of training (no
    reading, compiling or measuring) count from the start of its call; loss_curve_; n_epochs_, of all fits since the
    last fresh one; vectorizer_, if set, turns texts into X and is saved along.

    `score` is the accuracy for one class a row, and P@1 for multi-label data: subset accuracy, scikit-learn's usual
    choice there, is near zero for any model with many labels.
    """

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (256,),
        *,
        loss: str = "auto",
        optimizer: str | Optimizer = "adam",
        learning_rate_init: float | Literal["auto"] = "auto",
        learning_rate: str = "linear",
        warm_up: float = 0.02,
        batch_size: int | Literal["auto"] = "auto",
        negatives: int | Literal["auto", "all"] = "auto",
        gradient_rounding: float | Literal["auto"] = "auto",
        shortlist: int | Literal["auto"] = "auto",
        blend: str = "logistic",
        max_epochs: int | Literal["auto"] = "auto",
        weight_decay: float = 0.0,
        clip_norm: float = 0.0,
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        average_weights: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_epochs_no_change: int = 3,
        tol: float = 1e-4,
        class_weight: dict[Any, float] | str | None = None,
        algorithm: Any = "auto",
        devices: str = "cpu",
        precision: str = "auto",
        n_jobs: int | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.loss = loss
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.learning_rate = learning_rate
        self.warm_up = warm_up
        self.batch_size = batch_size
        self.negatives = negatives
        self.gradient_rounding = gradient_rounding
        self.shortlist = shortlist
        self.blend = blend
        self.max_epochs = max_epochs
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.input_dropout = input_dropout
        self.hidden_dropout = hidden_dropout
        self.average_weights = average_weights
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_epochs_no_change = n_epochs_no_change
        self.tol = tol
        self.class_weight = class_weight
        self.algorithm = algorithm
        self.devices = devices
        self.precision = precision
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # Learned.
    n_features_in_: int
    optimizer_state_: np.ndarray | None
    history_: list[dict[str, Any]]
    loss_curve_: list[float]
    n_epochs_: int
    n_steps_: int
    _optimizer_kind: int
    _seed: int
    shortlist_: Shortlist | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_params")

    def __getstate__(self) -> dict[str, Any]:
        # Buffers and handles of a device belong to the process.
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_scorers": {}} if "_scorers" in state else state

    def __copy__(self) -> XMLClassifier:
        # What learns on changes these arrays in place, and must not change those of another model.
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__getstate__())
        for name in ("_params", "optimizer_state_"):
            array = getattr(self, name, None)
            if isinstance(array, np.ndarray) and array.flags.writeable:
                setattr(other, name, array.copy())
        return other

    # Learning

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any] | None = None,
        *,
        label_names: Sequence[Any] | None = None,
        monitors: Sequence[Monitor] = (),
    ) -> XMLClassifier:
        """Learn from X (n, F) and the labels y of its rows; return self.

        `sample_weight` (n,) weighs the rows; `eval_set` (X, Y) is measured after every epoch, P@1, P@3 and P@5 in
        percent in `history_`; `label_names` name the columns of an indicator; `monitors` watch the run. Raises
        `DataError` for input that breaks a rule, `MemoryEstimateError` before a run that would not fit, and
        `DivergenceError` when the loss is not finite in the first epoch; later it warns and keeps the last good model.
        After an error the estimator is what it was before, but for `WorkerDied`, where no worker is left: what was
        learned until then is kept, as after Ctrl-C.
        """
        check_parameters(self)
        check_monitors(monitors)
        old = self.network_ if self.warm_start and self.__sklearn_is_fitted__() else None
        with self._unless_refused():
            known = self.classes_ if old else None if label_names is None else as_names(label_names, "label_names")
            task = prepare(self, X, y, known, old, sample_weight, eval_set, listing=True)
            self._check_memory(task, self._learned_bytes())
            if old is None:
                self._begin_anew()
            start = replace(begin(task.network, task.optimizer, task.dataset.Y, self._seed), epochs=self.n_epochs_)
            if old is not None:
                copy_rows(old.layout, self.params_, task.network.layout, start.params)
            listing, self.shortlist_ = _listing(task, self._seed), None
            run = self._launch(listing.task if listing else task, start, plan_of(self, task), monitors)
            if run.diverged and not run.records:
                raise DivergenceError(advice(self, start.epochs + 1))
            self._keep(task, run, start.epochs)
            if listing:
                try:
                    self.shortlist_ = listing.finish(run.params)
                except KeyboardInterrupt as interrupt:  # the network alone is a model, too
                    raise Interrupted(run) from interrupt
        if run.diverged:
            text = f"{advice(self, self.n_epochs_ + 1)}; the last good model is kept"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> XMLClassifier:
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
            task = prepare(self, X, y, known, old, sample_weight)
            check_declared(task.labels.classes, None if classes is None else known)
            self._check_memory(task, self._learned_bytes(task))
            if old is None:
                self._begin_anew()
                start = begin(task.network, task.optimizer, task.dataset.Y, self._seed)
            else:
                start = grow(old, task.network, task.optimizer, self._learned(task), task.dataset.Y, self._seed)
            run = self._launch(task, start, Plan(1, "constant", 0.0), ())
            if run.diverged and (old is None or old.layout != task.network.layout):
                raise DivergenceError(advice(self, start.epochs + 1))
            self._keep(task, run, start.epochs)
        if run.diverged:  # the arrays were changed in place: the parameters are back, the optimizer begins anew
            raise DivergenceError(advice(self, start.epochs + 1))
        return self

    def estimate_memory(self, X: Any, y: Any, eval_set: tuple[Any, Any] | None = None) -> dict[str, int]:
        """Return the bytes that `fit(X, y)` would take by part, with their sum as "total"; nothing is trained.

        Parts: parameters, optimizer_state, average, earlier_model (a fitted one, which stays until the new one is
        done), data (without memory maps), replicas and workers (processes, and what they merge), names (of the labels),
        buffers, evaluation (of `eval_set`, or of rows held out for early stopping), shortlist. What a GPU's memory
        holds stands by its name, "cuda:0", and is not in the sum.
        """
        check_parameters(self)
        probe = XMLClassifier(**self.get_params(deep=False))
        if hasattr(self, "vectorizer_"):
            probe.vectorizer_ = self.vectorizer_
        task = prepare(probe, X, y, None, None, None, eval_set, listing=True)
        return {**probe._estimate(task, self._learned_bytes()), **on_gpus(task)}

    # Keeping

    def save(self, path: str | Path, *, predict_only: bool = False, compact: bool = False) -> None:
        """Write the model to a directory of JSON and plain arrays, with checksums; nothing in it is code.

        `predict_only` leaves out the optimizer's state; `compact` does, too, and rounds weights to int8, which changes
        P@k by hundredths and makes the folder a sixth as large. Neither can be trained on. Raises `ModelFileError`
        where `path` holds something else.
        """
        check_is_fitted(self)
        saving.save(self, path, predict_only, compact)

    @classmethod
    def load(cls, path: str | Path, *, predict_only: bool = True, verify: bool = True) -> XMLClassifier:
        """Return the model that `save` wrote.

        With `predict_only` the parameters stay a read-only memory map; else `partial_fit` goes on exactly where the
        saved model was. A compact model is mapped as it is, and opened in milliseconds; what it follows is checked when
        it predicts. `verify` compares checksums of files that have changed since that was done (`checked.json` in the
        folder). Raises `ModelFileError` for a directory that `save` did not write, or that was altered.
        """
        return saving.load(cls, path, predict_only, verify)

    # Parts of the above

    @contextmanager
    def _unless_refused(self) -> Iterator[None]:
        """Leave the model as it was where its input is refused or learning fails.

        Ctrl-C, and workers that are lost for good, keep what was learned.
        """
        before = dict(self.__dict__)
        try:
            yield
        except (Interrupted, WorkersLost):
            raise
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _begin_anew(self) -> None:
        """Draw a seed and begin the history."""
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.n_epochs_, self.history_, self.shortlist_ = 0, [], None

    def _learned(self, task: Task) -> Start:
        """Return the model to go on with, and the optimizer's state where the optimizer is still of its kind."""
        if self.optimizer_state_ is None:
            raise DataError(
                "partial_fit: the model has no optimizer state; load(path, predict_only=False) reads it, if saved "
                "without predict_only and compact"
            )
        params = _writeable(self.params_)
        if self._optimizer_kind != task.optimizer.kind:
            return Start(params, begin_state(self.network_, task.optimizer), 0, self.n_epochs_)
        return Start(params, _writeable(self.optimizer_state_), self.n_steps_, self.n_epochs_)

    def _launch(self, task: Task, start: Start, plan: Plan, monitors: Sequence[Monitor]) -> Run:
        """Train; after Ctrl-C, and when all workers are lost, keep the model as it is then."""
        try:
            return launch(self, task, start, plan, monitors)
        except (Interrupted, WorkersLost) as end:
            self._keep(task, end.run, start.epochs)
            if isinstance(end, WorkersLost):
                end.say("; save it, or go on from it by partial_fit or by fit with warm_start=True")
            raise

    def _keep(self, task: Task, run: Run, epochs: int) -> None:
        """Take the result of a run over; `epochs` were done before it."""
        if epochs == 0:
            self.label_form_ = task.labels.form
        names = task.labels.classes
        self.classes_, self.network_ = np.arange(len(names)) if isinstance(names, range) else names, task.network
        self.params_, self.optimizer_state_, self.n_steps_ = run.params, run.state, run.steps
        self._optimizer_kind, self._scorers = task.optimizer.kind, {}
        self.history_ = [*self.history_, *run.records]
        self.loss_curve_ = [record["loss"] for record in self.history_]
        self.n_epochs_ = epochs + len(run.records)
        if self.shortlist_ is not None and not run.diverged:
            self.shortlist_ = self.shortlist_.grown(task.dataset.X, task.dataset.Y, task.weight, task.cpu)

    def _learned_bytes(self, task: Task | None = None) -> int:
        """Return the bytes of the model so far, which stays beside a new one; none where `task` goes on in place."""
        if not self.__sklearn_is_fitted__() or isinstance(self._params, CompactParams):  # which is mapped
            return 0
        params, state = self._params, self.optimizer_state_
        if task is not None and self.network_.layout == task.network.layout and params.flags.writeable:
            params = None
            state = None if self._optimizer_kind == task.optimizer.kind else state
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
    if not task.listed:
        return None
    from .list_learning import Listing  # here, so that an estimator can be made without loading Numba

    return Listing.begin(task, seed)


def _writeable(array: np.ndarray) -> np.ndarray:
    """Return an array that may be changed: a copy of a read-only map."""
    return array if array.flags.writeable else array.copy()
