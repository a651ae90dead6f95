"""The estimator: a sparse neural network for multi-label and multi-class data, with scikit-learn's rules."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..algorithms import get_algorithm
from ..averaging import WeightAverage
from ..checkpoint import Snapshot
from ..csr import CSR, Dataset
from ..engine import Run, train
from ..errors import DataError, DivergenceError, MemoryEstimateError, shorten
from ..executors.serial import Serial
from ..history import EarlyStopping, Evaluation, Monitor
from ..learner import Start
from ..losses import get_loss
from ..network import Network
from ..optimizers import Optimizer, get_optimizer
from ..schedules import SCHEDULES
from . import memory, saving
from .growing import begin, begin_state, grow
from .inputs import read_features, read_weight
from .targets import Form, Labels, as_names, form_of, label_weights, read_labels
from .training import (
    Measure,
    auto_batch_size,
    auto_epochs,
    auto_rate,
    flops,
    input_scale,
    make_device,
    row_blocks,
    thread_count,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

DENSE_LIMIT = 1 << 30  # bytes of a dense (n, L) answer: above, a user wanted `predict_topk`
LOGIT_BLOCK = 1 << 24  # logits looked at in one go when labels are picked: 64 MB
LOG_HALF = math.log(0.5)


def _has_probabilities(model: XMLClassifier) -> bool:
    """Return whether scores are log odds; a margin is not."""
    if model.loss == "squared_hinge":
        raise AttributeError("predict_proba needs loss='bce' or 'softmax'; a hinge score is a margin, not a log odds")
    return True


class XMLClassifier(ClassifierMixin, BaseEstimator):
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
    learning_rate_init : the rate at the start; "auto" for what suits the optimizer (Adam: 4e-3).
    learning_rate : how it falls over the run: "linear", "cosine", "constant", "inverse_sqrt".
    warm_up : share of the run, in [0, 1), over which the rate rises from zero.
    batch_size : rows a step; "auto" for 256, less on less than 16,384 rows.
    max_epochs : passes over the rows; "auto" for 8, more where that would be fewer than 600 steps.
    weight_decay, clip_norm : see `Optimizer`; for an optimizer given by name.
    input_dropout, hidden_dropout : shares in [0, 1) left out in training.
    average_weights : share of the run, in [0, 1], whose models are averaged at its end; not with early_stopping.
    early_stopping : stop when P@1 on `eval_set`, or on a `validation_fraction` of the rows, has not risen by more
        than `tol` (a fraction) for `n_epochs_no_change` epochs; the best model is kept.
    class_weight : None, "balanced" or {class: weight}; for one class a row.
    algorithm : name or `Algorithm`. devices : "cpu".
    precision : of the matrix products, "float32", "bfloat16", or "auto" for the faster one of this processor.
    n_jobs : threads; None for all cores that the process may use. One thread and one seed give the same bits.
    warm_start : begin `fit` with the parameters of the last one.
    random_state : seed of weights, row order and dropout. verbose : 1 for a progress bar on a terminal.

    Attributes
    ----------
    classes_ (L,) names of the label columns; n_features_in_; feature_names_in_ where X had them; params_, float32,
    the flat parameters (`Network.layout`); history_, one record an epoch; loss_curve_; n_epochs_, of all fits since
    the last fresh one; vectorizer_, if set, turns texts into X and is saved along.

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
        algorithm: Any = "sequential",
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
    classes_: np.ndarray
    n_features_in_: int
    label_form_: Form
    params_: np.ndarray
    optimizer_state_: np.ndarray | None
    history_: list[dict[str, Any]]
    loss_curve_: list[float]
    n_epochs_: int
    n_steps_: int
    _devices: dict[tuple[str, int, str], Any]  # the one of the last prediction

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "params_")

    def __getstate__(self) -> dict[str, Any]:
        # Buffers and handles of a device belong to the process.
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_devices": {}} if "_devices" in state else state

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
        """
        self._check_parameters()
        goes_on = bool(self.warm_start) and self.__sklearn_is_fitted__()
        old = self._network() if goes_on else None
        dataset, labels = self._read_rows(X, y, self.classes_ if goes_on else label_names, grows=goes_on)
        weight = self._row_weights(sample_weight, labels)
        held_out = self._read_eval_set(eval_set, labels)
        if self.early_stopping and held_out is None:
            dataset, weight, held_out = self._hold_out(dataset, weight)
        if not goes_on:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self._input_scale = input_scale(dataset.X)
            self.n_epochs_ = 0
        self._adopt(dataset, labels, fresh=not goes_on)
        network, optimizer = self._network(), self._optimizer()
        batch = self._batch_size(dataset.n_rows)
        memory.check(self._estimate(dataset, network, optimizer, batch), network)
        if old is None:
            self._forget()
        start = begin(network, optimizer, dataset.Y, self._seed)
        if old is not None:
            learned = Start(self.params_, begin_state(old, optimizer))
            start.params[:] = grow(old, network, optimizer, learned, dataset.Y, self._seed).params
        start = Start(start.params, start.state, 0, self.n_epochs_)
        epochs = auto_epochs(dataset.n_rows, batch) if self.max_epochs == "auto" else int(self.max_epochs)
        self._run(dataset, weight, start, epochs, self.learning_rate, self.warm_up, held_out, monitors)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> XMLClassifier:
        """Learn from more rows in one pass at a constant rate; return self.

        Columns of X and labels may be added at any time: the model grows and keeps what it learned. `classes` names
        labels that later calls will bring. The optimizer goes on where the last call, `fit` or `load` left it. A call
        copies the model once to a temporary file, to step back to when the loss is not finite (`DivergenceError`), so
        that calls with many rows cost less than many calls.
        """
        self._check_parameters()
        goes_on = self.__sklearn_is_fitted__()
        state = self.optimizer_state_ if goes_on else None
        if goes_on and state is None:
            raise DataError("partial_fit: the model was loaded with predict_only=True; load it with predict_only=False")
        old = self._network() if goes_on else None
        known = self.classes_ if goes_on else None
        if classes is not None:
            named = as_names(classes)
            known = np.unique(named) if known is None else np.concatenate([known, named[~np.isin(named, known)]])
        dataset, labels = self._read_rows(X, y, known, grows=goes_on)
        weight = self._row_weights(sample_weight, labels)
        if not goes_on:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self._input_scale = input_scale(dataset.X)
            self.n_epochs_ = 0
            self.history_ = []
        self._adopt(dataset, labels, fresh=not goes_on)
        network, optimizer = self._network(), self._optimizer()
        batch = self._batch_size(dataset.n_rows)
        memory.check(self._estimate(dataset, network, optimizer, batch), network)
        if old is None or state is None:
            start = begin(network, optimizer, dataset.Y, self._seed)
        else:
            start = Start(_writeable(self.params_), _writeable(state), self.n_steps_, self.n_epochs_)
            start = grow(old, network, optimizer, start, dataset.Y, self._seed)
        self._run(dataset, weight, start, 1, "constant", 0.0, None, ())
        return self

    def estimate_memory(self, X: Any, y: Any) -> dict[str, int]:
        """Return the bytes that `fit(X, y)` would take by part, with their sum as "total"; nothing is trained.

        Parts: parameters, optimizer_state, average, data (without memory maps), buffers.
        """
        self._check_parameters()
        probe = XMLClassifier(**self.get_params(deep=False))
        if hasattr(self, "vectorizer_"):
            probe.vectorizer_ = self.vectorizer_
        dataset, labels = probe._read_rows(X, y, None, grows=False)
        probe._input_scale = 1.0
        probe._adopt(dataset, labels, fresh=True)
        network, optimizer = probe._network(), probe._optimizer()
        return probe._estimate(dataset, network, optimizer, probe._batch_size(dataset.n_rows))

    # Predicting

    def predict(self, X: Any) -> Any:
        """Return the labels of each row in the form of the training labels (see the class).

        One class a row: the best. Else every label with a score above 0, by softmax every label with at least half
        the probability of the best.
        """
        check_is_fitted(self)
        X = read_features(self, X)
        if self.label_form_ == "multiclass":
            if X.n_rows == 0:
                return self.classes_[:0]
            return self.classes_[self._top_k(X, 1)[0][:, 0]]
        if self.label_form_ == "dense":
            _check_dense(X.n_rows, len(self.classes_), 8)
            picked = np.zeros((X.n_rows, len(self.classes_)), dtype=np.int64)
            for rows, Z in self._logits(X):
                picked[rows] = self._picked(Z)
            return picked
        counts, found = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
        for _, Z in self._logits(X):
            row, label = np.nonzero(self._picked(Z))
            counts.append(np.bincount(row, minlength=len(Z)))
            found.append(label.astype(np.int32))
        indptr, indices = np.cumsum(np.concatenate(counts)), np.concatenate(found)
        shape = X.n_rows, len(self.classes_)
        return sp.csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=shape)

    def predict_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        labels: Any = None,
        threshold: float | None = None,
        as_csr: bool = False,
    ) -> Any:
        """Return the k best labels of each row: (labels, scores), int32 and float32 (n, k), best first.

        Labels are columns: `classes_[labels]` are their names. Scores are those of `decision_function`; with BCE
        1 / (1 + exp(-score)) is the probability. Ties go to the smaller column. Only columns in `labels`, if given,
        and scores of at least `threshold` count; where fewer than k remain, label -1 and score -inf fill up.
        With `as_csr` the answer is a scipy CSR array (n, L) of the scores.
        """
        check_is_fitted(self)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise DataError(f"k: must be an integer of at least 1, got {shorten(k)}")
        X = read_features(self, X)
        best, scores = self._top_k(X, int(k), None if labels is None else self._columns(labels))
        if threshold is not None:
            low = scores < threshold
            best[low], scores[low] = -1, -np.inf
        if not as_csr:
            return best, scores
        kept = best >= 0
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        answer = sp.csr_array((scores[kept], best[kept], indptr), shape=(X.n_rows, len(self.classes_)))
        answer.sort_indices()
        return answer

    def decision_function(self, X: Any, *, labels: Any = None) -> np.ndarray:
        """Return the scores, float32 (n, L), or (n, m) of the m columns `labels`: logits, or margins of the hinge.

        With two classes, one a row: the score of the second over the first, (n,). Raises `MemoryEstimateError` above
        1 GB.
        """
        check_is_fitted(self)
        X = read_features(self, X)
        columns = None if labels is None else self._columns(labels)
        n_columns = len(self.classes_) if columns is None else len(columns)
        _check_dense(X.n_rows, n_columns, 4)
        scores = np.empty((X.n_rows, n_columns), np.float32)
        for rows, Z in self._logits(X, columns):
            scores[rows] = Z
        if labels is None and self.label_form_ == "multiclass" and n_columns == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities, float64 (n, L): of each label by itself, or of classes that sum to 1 in a row.

        The latter with softmax, and with one class a row. Raises `MemoryEstimateError` above 1 GB.
        """
        check_is_fitted(self)
        X = read_features(self, X)
        _check_dense(X.n_rows, len(self.classes_), 8)
        chances = np.empty((X.n_rows, len(self.classes_)))
        softmax = self._loss() == "softmax"
        for rows, Z in self._logits(X):
            Z = Z.astype(np.float64)
            if softmax:
                Z -= Z.max(axis=1, keepdims=True)
            chances[rows] = np.exp(Z) if softmax else np.exp(-np.logaddexp(0, -Z))
        if softmax or self.label_form_ == "multiclass":
            chances /= chances.sum(axis=1, keepdims=True)
        return chances

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy for one class a row, P@1 (a fraction) for multi-label data."""
        check_is_fitted(self)
        if self.label_form_ == "multiclass":
            return float(super().score(X, y, sample_weight))
        truth = read_labels(y, self.classes_).Y
        best, _ = self.predict_topk(X, 1)
        _check_lengths(len(best), truth.n_rows)
        hits = np.asarray(truth.to_scipy()[np.arange(len(best)), best[:, 0]]).ravel() != 0
        return float(np.average(hits, weights=read_weight(sample_weight, len(best))))

    # Keeping

    def save(self, path: str | Path, *, predict_only: bool = False) -> None:
        """Write the model to a directory of JSON and plain arrays, with checksums; nothing in it is code.

        `predict_only` leaves out the optimizer's state. Raises `ModelFileError` where `path` holds something else.
        """
        check_is_fitted(self)
        saving.save(self, path, predict_only)

    @classmethod
    def load(cls, path: str | Path, *, predict_only: bool = True, verify: bool = True) -> XMLClassifier:
        """Return the model that `save` wrote.

        With `predict_only` the parameters stay a read-only memory map; else `partial_fit` goes on exactly where the
        saved model was. `verify` compares checksums. Raises `ModelFileError` for a directory that `save` did not
        write, or that was altered.
        """
        return saving.load(cls, path, predict_only, verify)

    # Parts of the above

    def _check_parameters(self) -> None:
        """Raise `DataError` for a parameter outside its range."""
        sizes = self.hidden_layer_sizes
        if np.ndim(sizes) != 1 or len(sizes) == 0 or not all(_is_count(size) for size in sizes):
            raise DataError(
                f"hidden_layer_sizes: must be one or more positive integers, as in (256,), got {shorten(sizes)}"
            )
        if self.loss != "auto":
            get_loss(self.loss)
        self._optimizer()
        if self.learning_rate not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            raise DataError(f"learning_rate: must be one of {known}, got {shorten(self.learning_rate)}")
        rate = self.learning_rate_init
        if rate != "auto" and not (_is_number(rate) and 0 < rate < math.inf):
            raise DataError(f"learning_rate_init: must be 'auto' or above 0, got {shorten(rate)}")
        for name in ("batch_size", "max_epochs"):
            value = getattr(self, name)
            if value != "auto" and not _is_count(value):
                raise DataError(f"{name}: must be 'auto' or a positive integer, got {shorten(value)}")
        if not _is_count(self.n_epochs_no_change):
            raise DataError(f"n_epochs_no_change: must be a positive integer, got {shorten(self.n_epochs_no_change)}")
        for name in ("warm_up", "input_dropout", "hidden_dropout"):
            if not (_is_number(getattr(self, name)) and 0 <= getattr(self, name) < 1):
                raise DataError(f"{name}: must be in [0, 1), got {shorten(getattr(self, name))}")
        for name in ("weight_decay", "clip_norm", "tol"):
            if not (_is_number(getattr(self, name)) and 0 <= getattr(self, name) < math.inf):
                raise DataError(f"{name}: must be 0 or above, got {shorten(getattr(self, name))}")
        if not (_is_number(self.average_weights) and 0 <= self.average_weights <= 1):
            raise DataError(f"average_weights: must be in [0, 1], got {shorten(self.average_weights)}")
        if not (_is_number(self.validation_fraction) and 0 < self.validation_fraction < 1):
            raise DataError(f"validation_fraction: must be in (0, 1), got {shorten(self.validation_fraction)}")
        if self.early_stopping and self.average_weights:
            raise DataError("average_weights: cannot be combined with early_stopping, which keeps the best model")
        get_algorithm(self.algorithm, 1, 1.0)
        thread_count(self.n_jobs)

    def _optimizer(self) -> Optimizer:
        return get_optimizer(self.optimizer, weight_decay=self.weight_decay, clip_norm=self.clip_norm)

    def _batch_size(self, n_rows: int) -> int:
        return auto_batch_size(n_rows) if self.batch_size == "auto" else min(int(self.batch_size), n_rows)

    def _loss(self) -> str:
        if self.loss == "auto":
            return "softmax" if self.label_form_ == "multiclass" else "bce"
        return self.loss

    def _network(self) -> Network:
        """Return the shape of the model that was learned."""
        return Network(
            self.n_features_in_, len(self.classes_), tuple(int(size) for size in self.hidden_layer_sizes), self._loss(),
            float(self.input_dropout), float(self.hidden_dropout), self._input_scale,
        )  # fmt: skip

    def _read_rows(self, X: Any, Y: Any, classes: Any, grows: bool) -> tuple[Dataset, Labels]:
        """Return the checked rows and labels; `n_features_in_` is learned unless the model only `grows`."""
        if Y is None:
            raise DataError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None; pass labels"
            )
        features = read_features(self, X, reset=not grows, grow=grows)
        known = None if classes is None else as_names(classes) if not isinstance(classes, np.ndarray) else classes
        labels = read_labels(Y, known)
        if grows and (labels.form == "multiclass") != (self.label_form_ == "multiclass"):
            raise DataError(f"Y: must be of the form seen before ({self.label_form_}), got {labels.form}")
        if features.n_rows == 0:
            raise DataError("X: must have at least one row, got 0")
        _check_lengths(features.n_rows, labels.Y.n_rows)
        if labels.Y.nnz == 0:
            raise DataError(f"Y: must have at least one label, got none in {labels.Y.n_rows} rows")
        return Dataset(features, labels.Y), labels

    def _row_weights(self, sample_weight: Any, labels: Labels) -> np.ndarray | None:
        weight, by_class = read_weight(sample_weight, labels.Y.n_rows), label_weights(self.class_weight, labels)
        if weight is None or by_class is None:
            return weight if by_class is None else by_class
        return weight * by_class

    def _adopt(self, dataset: Dataset, labels: Labels, fresh: bool) -> None:
        """Take over what the rows say of the model's shape."""
        self.n_features_in_ = dataset.n_features
        self.classes_ = labels.classes
        if fresh:
            self.label_form_ = labels.form

    def _read_eval_set(self, eval_set: Any, labels: Labels) -> Dataset | None:
        if eval_set is None:
            return None
        if not isinstance(eval_set, tuple | list) or len(eval_set) != 2:
            raise DataError(f"eval_set: must be a pair (X, Y), got {shorten(eval_set)}")
        X = read_features(self, eval_set[0])
        form = form_of(eval_set[1])
        if (form == "multiclass") != (labels.form == "multiclass"):
            raise DataError(f"eval_set: Y must be of the form of the training labels ({labels.form}), got {form}")
        Y = read_labels(eval_set[1], labels.classes, "eval_set: Y").Y
        _check_lengths(X.n_rows, Y.n_rows, "eval_set: ")
        return Dataset(X, Y)

    def _hold_out(self, dataset: Dataset, weight: np.ndarray | None) -> tuple[Dataset, np.ndarray | None, Dataset]:
        """Return the training rows with their weights, and a random `validation_fraction` of the rows."""
        n = dataset.n_rows
        n_held = max(round(self.validation_fraction * n), 1)
        if n_held >= n:
            raise DataError(f"early_stopping: needs rows for training and for validation, got {n} in all")
        order = check_random_state(self.random_state).permutation(n)
        held, kept = np.sort(order[:n_held]), np.sort(order[n_held:])
        return (
            Dataset(dataset.X.take(kept), dataset.Y.take(kept)),
            None if weight is None else weight[kept],
            Dataset(dataset.X.take(held), dataset.Y.take(held)),
        )

    def _estimate(self, dataset: Dataset, network: Network, optimizer: Optimizer, batch: int) -> dict[str, int]:
        n_threads = thread_count(self.n_jobs, 3 * flops(network, dataset.X, batch))
        return memory.estimate(dataset, network, optimizer, batch, n_threads, self.average_weights > 0)

    def _run(
        self, dataset: Dataset, weight: np.ndarray | None, start: Start, epochs: int, schedule: str, warm_up: float,
        held_out: Dataset | None, monitors: Sequence[Monitor],
    ) -> None:  # fmt: skip
        """Train from `start` and take the result over, also after Ctrl-C."""
        network, optimizer = self._network(), self._optimizer()
        rate = auto_rate(optimizer) if self.learning_rate_init == "auto" else float(self.learning_rate_init)
        batch = self._batch_size(dataset.n_rows)
        algorithm = get_algorithm(self.algorithm, batch, rate)
        # Backward takes two products for each one forward.
        n_threads = thread_count(self.n_jobs, 3 * flops(network, dataset.X, batch))
        device = make_device(self.devices, n_threads, self.precision)
        snapshot = Snapshot() if self.early_stopping and held_out is not None else None
        watching = self._monitors(Measure(held_out.X, held_out.Y, network, device) if held_out else None, snapshot)
        try:
            with device.start():
                run = train(
                    dataset, network, algorithm, Serial([device]), optimizer=optimizer, epochs=epochs,
                    schedule=schedule, warm_up=warm_up, seed=self._seed, sample_weight=weight, start=start,
                    monitors=[*watching, *monitors],
                )  # fmt: skip
        except KeyboardInterrupt:
            self._keep(Run(start.params, [], start.state, start.steps), start.epochs)
            raise
        finally:
            if snapshot:
                snapshot.close()
        if run.diverged and not run.records and (start.epochs == 0 or schedule == "constant"):
            if start.epochs:
                self._keep(run, start.epochs)
            raise DivergenceError(self._advice(rate, start.epochs))
        self._keep(run, start.epochs)
        if run.diverged:
            warnings.warn(self._advice(rate, self.n_epochs_) + "; the last good model is kept", ConvergenceWarning, 3)

    def _monitors(self, measure: Measure | None, snapshot: Snapshot | None) -> Iterator[Monitor]:
        """Yield those who watch a run, in the order in which they change its records and its model."""
        average = WeightAverage(self.average_weights) if self.average_weights else None
        if average:
            yield average
        if measure:
            # Averaged weights are what the run will end with, so they are what is measured.
            yield Evaluation(
                lambda center: measure(center if average is None or average.mean is None else average.mean)
            )
        if snapshot:
            yield EarlyStopping("P@1", int(self.n_epochs_no_change), 100 * self.tol, snapshot)
        if self.verbose:
            from ..progress import Progress

            yield Progress()

    def _forget(self) -> None:
        """Let go of what an earlier fit learned, so that two models are never in memory together."""
        for name in ("params_", "optimizer_state_"):
            self.__dict__.pop(name, None)

    def _keep(self, run: Run, epochs: int) -> None:
        """Take the result of a run over; `epochs` were done before it."""
        before = self.history_ if epochs else []
        self.params_, self.optimizer_state_, self.n_steps_ = run.params, run.state, run.steps
        self.history_ = [*before, *run.records]
        self.loss_curve_ = [record["loss"] for record in self.history_]
        self.n_epochs_ = epochs + len(run.records)
        self._devices = {}

    def _advice(self, rate: float, epochs: int) -> str:
        return (
            f"the loss was not finite in epoch {epochs + 1} at learning_rate_init={rate:g}; pass a lower one "
            f"({rate / 10:g}), clip_norm=1.0, or scale X (rows of norm 1)"
        )

    def _prepared(self, network: Network, X: CSR) -> Any:
        """Return the device for predictions; its buffers are kept between calls."""
        wanted = self.devices, thread_count(self.n_jobs, flops(network, X, X.n_rows)), self.precision
        if wanted not in self._devices:
            self._devices.clear()
            self._devices[wanted] = make_device(*wanted)
        return self._devices[wanted]

    def _columns(self, labels: Any) -> np.ndarray:
        """Return checked columns of labels."""
        columns, n_labels = np.asarray(labels), len(self.classes_)
        if columns.ndim != 1 or columns.dtype.kind not in "iu" or len(columns) == 0:
            raise DataError(f"labels: must be a list of column numbers, got {shorten(labels)}")
        bad = columns[(columns < 0) | (columns >= n_labels)]
        if len(bad):
            raise DataError(f"labels: must be columns in [0, {n_labels}), got {bad[0]}")
        return columns

    def _top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k labels and their scores, among `columns` where given."""
        network = self._network()
        device = self._prepared(network, X)
        layers = network.layers(self.params_)
        output = layers[-1]
        if columns is not None:
            columns = np.unique(columns)
            output = output._replace(W=output.W[columns], b=output.b[columns])
        labels, scores = np.full((X.n_rows, k), -1, np.int32), np.full((X.n_rows, k), -np.inf, np.float32)
        with device.start():
            for rows in row_blocks(X.n_rows, network.hidden):
                A = network.hidden_activations(device, layers, X, rows)
                labels[rows], scores[rows] = device.top_k(A, output, k)
        if columns is not None:
            labels = np.where(labels >= 0, columns[labels], -1).astype(np.int32)
        return labels, scores

    def _logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield row numbers and their logits (rows, L), or (rows, m) of m columns, a block at a time."""
        network = self._network()
        device = self._prepared(network, X)
        layers = network.layers(self.params_)
        W, b = (layers[-1].W, layers[-1].b) if columns is None else (layers[-1].W[columns], layers[-1].b[columns])
        size = max(LOGIT_BLOCK // max(len(b), *network.hidden), 1)
        for first in range(0, X.n_rows, size):
            rows = np.arange(first, min(first + size, X.n_rows))
            with device.start():
                A = network.hidden_activations(device, layers, X, rows)
            Z = A @ W.T
            Z += b
            yield rows, Z

    def _picked(self, Z: np.ndarray) -> np.ndarray:
        """Return which labels `predict` names, given logits."""
        if self._loss() == "softmax":
            return Z - Z.max(axis=1, keepdims=True) >= LOG_HALF
        return Z > 0


def _writeable(array: np.ndarray) -> np.ndarray:
    """Return an array that may be changed: a copy of a read-only map."""
    return array if array.flags.writeable else array.copy()


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value > 0)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _check_lengths(n_rows: int, n_labelled: int, name: str = "") -> None:
    if n_rows != n_labelled:
        raise DataError(f"{name}X and Y must have the same number of rows, got {n_rows} and {n_labelled}")


def _check_dense(n_rows: int, n_labels: int, size: int) -> None:
    """Raise `MemoryEstimateError` for a dense answer above the limit."""
    needed = n_rows * n_labels * size
    if needed > DENSE_LIMIT:
        raise MemoryEstimateError(
            f"a dense answer of {n_rows} rows and {n_labels} labels needs {needed / 1e9:.1f} GB, more than "
            f"{DENSE_LIMIT / 1e9:.1f} GB; use predict_topk, or fewer rows at a time"
        )
