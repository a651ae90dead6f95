"""What a trained classifier answers: labels, rankings, scores, probabilities."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..data.csr import CSR, pointers
from ..data.validation import is_number
from ..errors import DataError, shorten
from ..metrics.propensity import inverse_propensity_of
from ..nn.losses import find_loss
from .fitted import FittedAttributes
from .inference.rankings import ExcludingRanker, MeanScorer, WeightedRanker, labels_above
from .inference.scorer import check_dense, check_finite, checked_columns, checked_weight, columns_of
from .inputs import read_features, read_weight
from .targets import read_labels
from .training_data import check_form, check_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .inference import Ranker, Scorer
    from .inference.explanation import Explanation

LOG_HALF = math.log(0.5)
NO_PROBABILITIES = "needs a loss with probabilities, such as 'bce' or 'softmax'; a score of {!r} is a margin"


def _has_probabilities(model: Predictor) -> bool:
    """Return whether scores are log odds; a margin is not."""
    told = next(getattr(model, name) for name in ("network_", "estimator", "loss") if hasattr(model, name))
    loss = getattr(told, "loss", told)
    if loss != "auto" and find_loss(loss).probability is None:
        raise AttributeError(f"predict_proba: {NO_PROBABILITIES.format(loss)}")
    return True


class Predictor(FittedAttributes, ClassifierMixin):
    """The methods of fitted estimators."""

    def _scorer(self, X: CSR) -> Scorer | MeanScorer:
        """Return what scores rows such as X."""
        raise NotImplementedError

    def _read(self, X: Any) -> CSR:
        """Return X as checked rows; scikit-learn's `NotFittedError` before `fit`."""
        if not self.__sklearn_is_fitted__():  # asking scikit-learn each time takes as long as half a row
            check_is_fitted(self)
        return read_features(X, self.fitted_.features)

    def _ranker(self, X: CSR, label_weight: Any, exclude: Any = None) -> Ranker | WeightedRanker:
        """Return what ranks the labels of rows such as X, each of which counts as much as its weight, if given."""
        scorer: Ranker = self._scorer(X)
        if exclude is not None and np.size(exclude):
            excluded = np.zeros(self.network_.n_labels, np.bool_)
            excluded[checked_columns(exclude, self.network_.n_labels, "exclude")] = True
            scorer = ExcludingRanker(scorer, excluded)
        if label_weight is None:
            return scorer
        loss = find_loss(self.network_.loss)
        if loss.probability is None:
            raise DataError(f"label_weight: {NO_PROBABILITIES.format(loss.name)}")
        weight = checked_weight(label_weight, self.network_.n_labels)
        log_odds = None if loss.normalized else self.fitted_.calibration.log_odds
        return WeightedRanker(scorer, weight, log_odds)

    def predict(self, X: Any, threshold: float | str | None = None) -> Any:
        """Return the labels of each row in the form of the training labels.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.
        threshold : {"micro", "macro"} or float, optional
            The least probability of a label: that learned on held-out rows for micro F1, those for macro F1, one for
            each label (`thresholds_`), or a number. By default "micro" where scores stand for probabilities; with one
            class a row, softmax and squared hinge they do not, and none is accepted.

        Returns
        -------
        ndarray or scipy.sparse.csr_array
            One class a row: the best. Otherwise every label with at least the threshold's probability, with softmax
            every label with at least half the probability of the best, with squared hinge every label with a margin
            above 0: a dense indicator (n, L) where Y was dense, else a CSR array. With candidates and probabilities,
            these are among the labels that `predict_topk` ranks, which may be fewer.
        """
        X, n_labels = self._read(X), self.network_.n_labels
        if threshold is not None or self.fitted_.has_probabilities:
            least = self._least_probability("micro" if threshold is None else threshold)
        elif self.label_form_ == "multiclass":
            if X.n_rows == 0:
                return self.classes_[:0]
            best, scores = self._scorer(X).top_k(X, 1)
            check_finite(scores, X)
            return self.classes_[best[:, 0]]
        if self.label_form_ == "dense":
            check_dense(X.n_rows, n_labels, 8)
        if self.fitted_.has_probabilities:
            row, label, _ = labels_above(lambda rows, k: self._ranked_probabilities(X, rows, k), X.n_rows, least)
        else:
            picked = [(rows, *np.nonzero(_picked_labels(Z, self.network_.loss))) for rows, Z in self._logits(X)]
            row = np.concatenate([np.empty(0, np.intp), *(rows[row] for rows, row, _ in picked)])
            label = np.concatenate([np.empty(0, np.intp), *(label for *_, label in picked)])
        if self.label_form_ == "dense":
            indicator = np.zeros((X.n_rows, n_labels), dtype=np.int64)
            indicator[row, label] = 1
            return indicator
        indptr = pointers(np.bincount(row, minlength=X.n_rows))
        return sp.csr_array((np.ones(len(row), np.int8), label.astype(np.int32), indptr), shape=(X.n_rows, n_labels))

    def load_kernels(self, X: Any, k: int = 5, *, label_weight: Any = None) -> None:
        """Load, or compile, what `predict_topk(X, k)` will run, by ranking a few of the rows.

        It takes a second, or a minute where nothing was compiled yet: more than the first user of a server should wait.

        Parameters
        ----------
        X, k, label_weight
            As in `predict_topk`.
        """
        X = self._read(X)
        self._ranker(X, label_weight).load_kernels(X, min(int(k), self.network_.n_labels))

    def predict_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        labels: Any = None,
        exclude: Any = None,
        threshold: float | str | None = None,
        label_weight: Any = None,
        proba: bool = False,
        as_csr: bool = False,
    ) -> Any:
        """Return the k best labels of each row.

        With candidates, these are scored: by default 64 with the most votes and 64 by co-occurrence. A row with fewer
        than k is filled up by the network, whose best labels compete with the candidates where k is more than half of
        their number; where `labels` are given, all of these are scored.
        Without candidates all labels are; where `precision_` is bfloat16, the best k + 8 by such products are scored
        anew in float32 and ranked by that, so a label just below them may be missed.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.
        k : int
            Labels per row; a k above the number of labels is that number.
        labels : array of int, optional
            The only columns that count.
        exclude : array of int, optional
            Columns that do not count, such as those of deprecated labels.
        threshold : float, "micro" or "macro", optional
            The least probability of a label that counts, as in `predict`.
        label_weight : array of float (L,), optional
            What a true label counts, above 0: labels are ranked by weight x probability, of which the scores are the
            logs (with softmax up to a constant of the row), among the likeliest 32, of an ensemble 16, or k.
            `inverse_propensity()` makes PSP@k as large as it can be, a power of it between 0 and 1 trades P@k for it.
        proba : bool
            Whether to return probabilities in place of scores; not with softmax, whose probabilities take all labels.
        as_csr : bool
            Whether to return one scipy CSR array (n, L) of the scores instead.

        Returns
        -------
        labels : ndarray of int32 (n, k)
            Label columns, best first, of equals the smaller first; `classes_[labels]` are their names. Where fewer than
            k labels count, -1 fills up.
        scores : ndarray of float32 (n, k)
            Their scores, those of `decision_function`; -inf fills up. With `proba` float64, filled up by 0.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise DataError(f"k: must be an integer of at least 1, got {shorten(k)}")
        X = self._read(X)
        least = None if threshold is None else self._least_probability(threshold)
        if proba:
            self._check_probabilities("proba")
        columns = None if labels is None else checked_columns(labels, self.network_.n_labels)
        ranker = self._ranker(X, label_weight, exclude)
        best, scores = ranker.top_k(X, min(int(k), self.network_.n_labels), columns)
        all_count = columns is None and exclude is None  # then label -1 stands for a score that is not finite
        check_finite(scores, X, counted=None if all_count else best >= 0)
        if least is not None or proba:
            if label_weight is None:
                probabilities = self.fitted_.probability(scores)
            else:  # scores are the logs of weight x probability
                probabilities = np.exp(scores.astype(np.float64)) / np.asarray(label_weight, np.float64)[best]
            probabilities = np.where(best >= 0, np.minimum(probabilities, 1), 0)
            low = probabilities < (0 if least is None else least[best])
            best[low], scores[low], probabilities[low] = -1, -np.inf, 0
            scores = probabilities if proba else scores
        if not as_csr:
            return best, scores
        kept = best >= 0
        indptr = pointers(kept.sum(axis=1))
        answer = sp.csr_array((scores[kept], best[kept], indptr), shape=(X.n_rows, self.network_.n_labels))
        answer.sort_indices()
        return answer

    def explain(self, X: Any, labels: Any = None, k: int = 5) -> list[list[Explanation]]:
        """Return what the scores of labels are made of: words, neighbors, co-occurrence and network.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.
        labels : array of int or str (m,), optional
            The columns to explain, or names that are strings; by default the k best labels of each row.
        k : int
            Labels per row, where `labels` are not given.

        Returns
        -------
        list of list of Explanation
            Of each row, in the order of `labels`, or the label with the highest score first.
        """
        from .inference.explanation import explain_row  # here, so that an estimator can be made without loading Numba

        X, words = self._read(X), self.fitted_.features.shown
        if labels is None:
            columns, scores = self.predict_topk(X, k)
        else:
            chosen = columns_of(labels, self.classes_)
            scores = self.decision_function(X, labels=chosen)
            columns = np.broadcast_to(chosen, scores.shape)
        explained = []
        for i in range(X.n_rows):
            row, listed = X.span(i, i + 1), columns[i] >= 0
            scorer = self._scorer(row)
            found = explain_row(scorer, row, columns[i][listed])
            if labels is None and isinstance(scorer, MeanScorer):  # whose ranking has upper bounds of means
                found.sort(key=lambda each: -each.score)
            else:
                known = zip(found, scores[i][listed].tolist(), strict=True)
                found = [replace(each, score=score) for each, score in known]
            names = self.classes_[[each.column for each in found]].tolist()
            explained.append([each.named(name, words) for each, name in zip(found, names, strict=True)])
        return explained

    def inverse_propensity(self, A: float = 0.55, B: float = 1.5, n_labels: int | None = None) -> np.ndarray:
        """Return the inverse propensity of each label by its training rows; the rarer a label, the larger.

        Parameters
        ----------
        A, B : float
            See `xmlsgd.inverse_propensity`.
        n_labels : int, optional
            More labels than L; those that are added were in no row.

        Returns
        -------
        ndarray of float64 (L,)

        Raises
        ------
        DataError
            For a model of fewer than 3 rows, and one that was saved without its label counts.
        """
        check_is_fitted(self)
        if self.label_counts_ is None:
            text = "the model was saved without its label counts"
            raise DataError(f"inverse_propensity: {text}; take xmlsgd.inverse_propensity(Y_train)")
        return inverse_propensity_of(self.label_counts_, self.n_samples_seen_, A, B, n_labels)

    def decision_function(self, X: Any, *, labels: Any = None) -> np.ndarray:
        """Return the scores of all labels, or of some.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.
        labels : array of int (m,), optional
            The columns to score.

        Returns
        -------
        ndarray of float32 (n, L) or (n, m)
            Logits, or margins of the hinge. With two classes, one a row: the score of the second over the first, (n,).

        Raises
        ------
        MemoryEstimateError
            Above 1 GB.
        """
        X = self._read(X)
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
        """Return the probabilities of all labels.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.

        Returns
        -------
        ndarray of float64 (n, L)
            Of each label by itself, calibrated on held-out rows where there were 100 training rows with candidate
            labels, or 1,000 for a network alone; with softmax, and with one class a row, they sum to 1 in a row.

        Raises
        ------
        MemoryEstimateError
            Above 1 GB.
        """
        X = self._read(X)
        check_dense(X.n_rows, self.network_.n_labels, 8)
        probabilities = np.empty((X.n_rows, self.network_.n_labels))
        for rows, Z in self._logits(X):
            probabilities[rows] = self.fitted_.probability(Z)
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy for one class a row, P@1 (a fraction) for multi-label data.

        Labels that the model does not know count as missed; an indicator must have a column for each that it knows.

        Parameters
        ----------
        X, y
            Rows and their labels, as in `fit`.
        sample_weight : array of float (n,), optional
            Weights of the rows.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        labels = read_labels(y, self.classes_)
        check_form(labels.form, self.label_form_)
        if labels.form in ("sparse", "dense") and labels.Y.n_cols != self.network_.n_labels:
            raise DataError(f"Y: must have the {self.network_.n_labels} columns of the model, got {labels.Y.n_cols}")
        truth = labels.Y
        best, _ = self.predict_topk(X, 1)
        check_lengths(len(best), truth.n_rows)
        return float(np.average(truth.has(best)[:, 0], weights=read_weight(sample_weight, len(best))))

    def _least_probability(self, threshold: Any) -> np.ndarray:
        """Return the threshold of each label, float64 (L,)."""
        self._check_probabilities("threshold")
        if isinstance(threshold, str) and threshold in ("micro", "macro"):
            threshold = self.thresholds_[threshold]
        elif not is_number(threshold) or not 0 <= threshold <= 1:
            raise DataError(f"threshold: must be a probability in [0, 1], 'micro' or 'macro', got {shorten(threshold)}")
        return np.broadcast_to(np.asarray(threshold, np.float64), self.network_.n_labels)

    def _check_probabilities(self, name: str) -> None:
        """Raise `DataError` where scores do not stand for probabilities."""
        if not self.fitted_.has_probabilities:
            if self.label_form_ == "multiclass":
                raise DataError(f"{name}: works for sets of labels, got one class a row; use predict_proba for these")
            wanted = "needs a probability of each label by itself, as with loss='bce'"
            raise DataError(f"{name}: {wanted}, got loss {self.network_.loss!r}")

    def _ranked_probabilities(self, X: CSR, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best labels of some rows of X, and their probabilities."""
        labels, scores = self._scorer(X).top_k(X.take(rows), k)
        check_finite(scores, X, rows)
        return labels, self.fitted_.probability(scores)

    def _logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield what `Scorer.logits` does, all of it finite."""
        for rows, Z in self._scorer(X).logits(X, columns):
            check_finite(Z, X, rows)
            yield rows, Z


def _picked_labels(Z: np.ndarray, loss: str) -> np.ndarray:
    """Return which labels `predict` names, given logits."""
    if find_loss(loss).normalized:
        return Z - Z.max(axis=1, keepdims=True) >= LOG_HALF
    return Z > 0
