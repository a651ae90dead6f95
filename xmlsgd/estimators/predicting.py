"""What a trained classifier answers: labels, rankings, scores, probabilities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..data.csr import pointers
from ..data.validation import is_number
from ..errors import DataError, shorten
from ..metrics.propensity import inverse_propensity_of
from ..nn.losses import find_loss
from .inference import Ranker, Scorer
from .inference.compact import CompactParams
from .inference.label_weights import WeighedRanker
from .inputs import read_features, read_weight
from .names import MappedNames
from .output_checks import check_dense, check_finite, checked_columns, checked_weight
from .placement import make_device, usable_precision
from .targets import Form, read_labels
from .task import check_form, check_lengths
from .threads import flops, thread_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..candidates import CandidateModel
    from ..data.csr import CSR
    from ..nn.network import Network


LOG_HALF = math.log(0.5)
NO_PROBABILITIES = "needs a loss with probabilities, such as 'bce' or 'softmax'; a score of {!r} is a margin"
MOST_SCORERS = 2  # kept: that of single rows, on one thread, and that of many


def _has_probabilities(model: Predictor) -> bool:
    """Return whether scores are log odds; a margin is not."""
    told = next(getattr(model, name) for name in ("network_", "estimator", "loss") if hasattr(model, name))
    loss = getattr(told, "loss", told)
    if loss != "auto" and find_loss(loss).probability is None:
        raise AttributeError(f"predict_proba: {NO_PROBABILITIES.format(loss)}")
    return True


class Predictor(ClassifierMixin):
    """What estimators answer, by the scores that `_scorer` gives."""

    # Learned.
    label_form_: Form
    network_: Network
    label_counts_: np.ndarray | None
    n_samples_seen_: int
    _classes: np.ndarray | MappedNames

    def __sklearn_is_fitted__(self) -> bool:
        raise NotImplementedError

    def _scorer(self, X: CSR) -> Ranker:
        """Return what scores rows such as X."""
        raise NotImplementedError

    def _ranker(self, X: CSR, label_weight: Any) -> Ranker | WeighedRanker:
        """Return what ranks the labels of rows such as X, each of which counts as much as its weight, if given."""
        if label_weight is None:
            return self._scorer(X)
        loss = find_loss(self.network_.loss)
        if loss.probability is None:
            raise DataError(f"label_weight: {NO_PROBABILITIES.format(loss.name)}")
        weight = checked_weight(label_weight, self.network_.n_labels)
        return WeighedRanker(self._scorer(X), weight, loss.normalized)

    @property
    def classes_(self) -> np.ndarray:
        """Return the names of the label columns (L,); those of a compact model are read now."""
        if isinstance(self._classes, MappedNames):
            self._classes = self._classes.read()
        return self._classes

    @classes_.setter
    def classes_(self, names: np.ndarray) -> None:
        self._classes = names

    def predict(self, X: Any) -> Any:
        """Return the labels of each row in the form of the training labels (see the class).

        One class a row: the best. Else every label with a score above 0, by softmax every label with at least half
        the probability of the best.
        """
        self._check_fitted()
        X = read_features(self, X)
        if self.label_form_ == "multiclass":
            if X.n_rows == 0:
                return self.classes_[:0]
            best, scores = self._scorer(X).top_k(X, 1)
            check_finite(scores, X)
            return self.classes_[best[:, 0]]
        if self.label_form_ == "dense":
            check_dense(X.n_rows, self.network_.n_labels, 8)
            picked = np.zeros((X.n_rows, self.network_.n_labels), dtype=np.int64)
            for rows, Z in self._logits(X):
                picked[rows] = _picked_labels(Z, self.network_.loss)
            return picked
        counts, found = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
        for _, Z in self._logits(X):
            row, label = np.nonzero(_picked_labels(Z, self.network_.loss))
            counts.append(np.bincount(row, minlength=len(Z)))
            found.append(label.astype(np.int32))
        indptr, indices = np.cumsum(np.concatenate(counts)), np.concatenate(found)
        shape = X.n_rows, self.network_.n_labels
        return sp.csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=shape)

    def load_kernels(self, X: Any, k: int = 5, *, label_weight: Any = None) -> None:
        """Load, or compile, what `predict_topk(X, k)` will run, by ranking a few of the rows.

        It takes a second, or a minute where nothing was compiled yet: more than the first who ask a server should wait.
        """
        self._check_fitted()
        X = read_features(self, X)
        self._ranker(X, label_weight).load_kernels(X, min(int(k), self.network_.n_labels))

    def predict_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        labels: Any = None,
        threshold: float | None = None,
        label_weight: Any = None,
        as_csr: bool = False,
    ) -> Any:
        """Return the k best labels of each row: (labels, scores), int32 and float32 (n, k), best first.

        Labels are columns: `classes_[labels]` are their names. Scores are those of `decision_function`; with BCE
        1 / (1 + exp(-score)) is the probability. Ties go to the smaller column. A k above the number of labels is that
        number. Only columns in `labels`, if given, and scores of at least `threshold` count; where fewer than k remain,
        label -1 and score -inf fill up. With `as_csr` the answer is a scipy CSR array (n, L) of the scores.

        `label_weight`, float (L,), above 0, says what a true label counts: labels are ranked by weight x probability,
        of which the scores are the logs (with softmax up to a constant of the row), among the likeliest 32, of an
        ensemble 16, or k. `inverse_propensity()` makes PSP@k as large as it can be, a power of it between 0 and 1
        trades P@k for PSP@k.

        With a shortlist its labels with the most votes are scored, by default 64, or 32 where the row is near to a
        training row, and a row with fewer than k is filled up by the network; where `labels` are given, all of these
        are scored. Without one all are; where `precision_` is bfloat16, the best k + 8 by these are scored
        anew in float32 and ranked by that, so a label just below them may be missed.
        """
        self._check_fitted()
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise DataError(f"k: must be an integer of at least 1, got {shorten(k)}")
        if threshold is not None and not is_number(threshold):
            raise DataError(f"threshold: must be a number or None, got {shorten(threshold)}")
        X = read_features(self, X)
        columns = None if labels is None else checked_columns(labels, self.network_.n_labels)
        best, scores = self._ranker(X, label_weight).top_k(X, min(int(k), self.network_.n_labels), columns)
        check_finite(scores, X, counted=None if columns is None else best >= 0)
        if threshold is not None:
            low = scores < threshold
            best[low], scores[low] = -1, -np.inf
        if not as_csr:
            return best, scores
        kept = best >= 0
        indptr = pointers(kept.sum(axis=1))
        answer = sp.csr_array((scores[kept], best[kept], indptr), shape=(X.n_rows, self.network_.n_labels))
        answer.sort_indices()
        return answer

    def inverse_propensity(self, A: float = 0.55, B: float = 1.5, n_labels: int | None = None) -> np.ndarray:
        """Return q_l of each label, float64 (L,), by the rows that were learned from; see `metrics.inverse_propensity`.

        The rarer a label, the larger. `n_labels` > L adds labels that were in none. `DataError` where a model was saved
        before it noted that, or of fewer than 3 rows.
        """
        self._check_fitted()
        counts = getattr(self, "label_counts_", None)
        if counts is None:
            text = "the model was saved without its label counts"
            raise DataError(f"inverse_propensity: {text}; take xmlsgd.inverse_propensity(Y_train)")
        return inverse_propensity_of(counts, self.n_samples_seen_, A, B, n_labels)

    def decision_function(self, X: Any, *, labels: Any = None) -> np.ndarray:
        """Return the scores, float32 (n, L), or (n, m) of the m columns `labels`: logits, or margins of the hinge.

        With two classes, one a row: the score of the second over the first, (n,). Raises `MemoryEstimateError` above
        1 GB.
        """
        self._check_fitted()
        X = read_features(self, X)
        columns = None if labels is None else checked_columns(labels, self.network_.n_labels)
        n_columns = self.network_.n_labels if columns is None else len(columns)
        check_dense(X.n_rows, n_columns, 4)
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
        self._check_fitted()
        X = read_features(self, X)
        check_dense(X.n_rows, self.network_.n_labels, 8)
        chances = np.empty((X.n_rows, self.network_.n_labels))
        loss = find_loss(self.network_.loss)
        assert loss.probability is not None
        for rows, Z in self._logits(X):
            chances[rows] = loss.probability(np.asarray(Z, dtype=np.float64))
        if self.label_form_ == "multiclass" and not loss.normalized:
            chances /= chances.sum(axis=1, keepdims=True)
        return chances

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy for one class a row, P@1 (a fraction) for multi-label data.

        Labels that the model does not know count as missed; an indicator must have a column for each that it knows.
        """
        self._check_fitted()
        labels = read_labels(y, self.classes_)
        check_form(labels.form, self.label_form_)
        if labels.form == "multiclass":
            return float(super().score(X, y, sample_weight))
        if labels.form != "lists" and labels.Y.n_cols != self.network_.n_labels:
            raise DataError(f"Y: must have the {self.network_.n_labels} columns of the model, got {labels.Y.n_cols}")
        truth = labels.Y
        best, _ = self.predict_topk(X, 1)
        check_lengths(len(best), truth.n_rows)
        hits = np.asarray(truth.to_scipy()[np.arange(len(best)), best[:, 0]]).ravel() != 0
        return float(np.average(hits, weights=read_weight(sample_weight, len(best))))

    def _check_fitted(self) -> None:
        """Raise scikit-learn's `NotFittedError` before `fit`; asking it each time takes as long as half a row."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)

    def _logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield what `Scorer.logits` does, all of it finite."""
        for rows, Z in self._scorer(X).logits(X, columns):
            check_finite(Z, X, rows[0])
            yield rows, Z


class NetworkPredictor(Predictor):
    """The half of `XMLClassifier` that predicts."""

    # Parameters.
    n_jobs: int | None

    # Learned. What decides answers is kept here: a parameter set after `fit` changes none.
    device_: str
    precision_: str
    candidates_: CandidateModel | None
    _params: np.ndarray | CompactParams
    _scorers: dict[tuple[str, int], Scorer]  # of the last predictions

    @property
    def params_(self) -> np.ndarray:
        """Return the parameters, float32 and flat; those of a compact model are widened now, and not kept."""
        return self._params.expanded() if isinstance(self._params, CompactParams) else self._params

    @params_.setter
    def params_(self, params: np.ndarray) -> None:
        self._params = params

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_params")

    def _scorer(self, X: CSR) -> Scorer:
        return self.scorer_on(X, self.n_jobs)

    def scorer_on(self, X: CSR, n_jobs: int | None) -> Scorer:
        """Return the scorer of rows such as X on the threads of `n_jobs`; it is kept, with its device's buffers."""
        listed = self.candidates_ is not None
        n_threads = thread_count(n_jobs, flops(self.network_, X, X.n_rows, listed))
        if listed and X.n_rows == 1:
            n_threads = 1  # others would only wait
        wanted = self.device_, n_threads
        scorer = self._scorers.get(wanted)
        if scorer is None or not scorer.is_of(self._params, self.candidates_):
            device = make_device(self.device_, n_threads, usable_precision(self.device_, self.precision_))
            scorer = _scorer_of(self.network_, self._params, device, self.candidates_, n_threads)
            if len(self._scorers) >= MOST_SCORERS:
                self._scorers.clear()  # in place: prediction may change no attribute. Other threads have theirs by name
            self._scorers[wanted] = scorer
        return scorer


def _scorer_of(
    network: Network, params: np.ndarray | CompactParams, device: Any, shortlist: CandidateModel | None, n_threads: int
) -> Scorer:
    """Return what scores rows by a network, with its shortlist if it has one; only a CPU of `n_threads` reads lists."""
    if shortlist is None:
        return Scorer(network, params, device)
    from ..devices.cpu import cpu_of  # here, so that an estimator can be made without loading Numba
    from .inference.candidates import ListScorer

    return ListScorer(network, params, device, shortlist, cpu_of(device, n_threads))


def _picked_labels(Z: np.ndarray, loss: str) -> np.ndarray:
    """Return which labels `predict` names, given logits."""
    if find_loss(loss).normalized:
        return Z - Z.max(axis=1, keepdims=True) >= LOG_HALF
    return Z > 0
