"""The prediction methods of fitted estimators: labels, rankings, scores, probabilities, explanations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..data.csr import CSR, pointers
from ..data.validation import is_number, is_positive_integer
from ..errors import DataError, shorten
from ..metrics.propensity import inverse_propensity_of
from ..nn.losses import find_loss
from .fitted import FittedAttributes
from .inference.rankings import ExcludingRanker, MeanScorer, WeightedRanker, labels_above
from .inference.scorer import Scorer, check_dense, check_finite, checked_weight, columns_of, some_rows
from .inputs import read_features
from .targets import read_labels
from .training_data import check_form, check_lengths, read_sample_weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .inference import Ranker
    from .inference.explanation import Explanation

LOG_HALF = np.log(0.5)


class Predictor(FittedAttributes, ClassifierMixin):
    """The prediction methods of fitted estimators."""

    @property
    def _n_jobs(self) -> int | None:
        """The threads of predictions."""
        n_jobs: int | None = getattr(self, "n_jobs", None)
        return n_jobs

    def _scorer(self, X: CSR) -> Scorer | MeanScorer:
        """Return the scorer for rows such as X."""
        return self.fitted_.scorer(X, self._n_jobs)

    def _read(self, X: Any) -> CSR:
        """Return X as checked rows; raise scikit-learn's `NotFittedError` before `fit`."""
        if not self.__sklearn_is_fitted__():  # `check_is_fitted` alone would take as long as predicting half a row
            check_is_fitted(self)
        return read_features(X, self.fitted_.features, self._n_jobs)

    def _ranker(self, X: CSR, label_weight: Any, exclude: Any = None) -> Ranker:
        """Return the ranker for rows such as X, with weights of labels and excluded labels, if given."""
        scorer = self._scorer(X)
        ranker: Ranker = scorer
        if exclude is not None and np.size(exclude):
            excluded = np.zeros(self.network_.n_labels, np.bool_)
            excluded[columns_of(exclude, self.fitted_, "exclude")] = True
            ranker = ExcludingRanker(scorer, excluded)
        if label_weight is None:
            return ranker
        weight = checked_weight(label_weight, self.network_.n_labels)
        log_odds = None if find_loss(self.network_.loss).normalized else self.fitted_.calibration.log_odds
        return WeightedRanker(ranker, weight, log_odds, scorer.n_reweighted)

    def predict(self, X: Any, threshold: float | str | None = None) -> Any:
        """Return the labels of each row in the form of the training labels.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.
        threshold : {"micro", "macro"} or float, optional
            Least probability of a predicted label: a number, or the thresholds that were learned on held-out rows for
            micro F1 (one for all labels) or macro F1 (one for each label, `thresholds_`). By default "micro". With one
            class per row, or softmax, scores are not probabilities of single labels, and no threshold is accepted.

        Returns
        -------
        ndarray or scipy.sparse.csr_array
            With one class per row, the best class (n,). Otherwise an indicator (n, L), dense if Y was dense, else a
            CSR array: of all labels whose probability reaches the threshold; with softmax, of those with at least half
            the probability of the best. With candidates and probabilities, only labels that `predict_topk` ranks can be
            predicted. The probabilities of an `XMLEnsemble` are those of its `predict_topk`, not of `predict_proba`.
        """
        X, n_labels = self._read(X), self.network_.n_labels
        least: np.ndarray | None = None
        if threshold is not None or self.fitted_.has_probabilities:
            least = self._least_probability("micro" if threshold is None else threshold)
        if self.label_form_ == "multiclass":
            best, _ = self._best(X, 1, self._scorer(X))
            return self.classes_[best[:, 0]]
        if self.label_form_ == "dense":
            check_dense(X.n_rows, n_labels, 8)
        if least is None:
            row, label = self._labels_by_scores(X)
        else:
            row, label, _ = labels_above(lambda rows, k: self._ranked_probabilities(X, rows, k), X.n_rows, least)
        if self.label_form_ == "dense":
            indicator = np.zeros((X.n_rows, n_labels), dtype=np.int64)
            indicator[row, label] = 1
            return indicator
        indptr = pointers(np.bincount(row, minlength=X.n_rows))
        return sp.csr_array((np.ones(len(row), np.int8), label.astype(np.int32), indptr), shape=(X.n_rows, n_labels))

    def load_kernels(self, X: Any, k: int = 5, *, label_weight: Any = None) -> None:
        """Load or compile the kernels of `predict_topk(X, k)` by ranking a few of the rows.

        This takes a second, or half a minute if nothing was compiled yet. A server should do it before the first
        request.

        Parameters
        ----------
        X, k, label_weight
            As in `predict_topk`.
        """
        X = self._read(X)
        ranker, k = self._ranker(X, label_weight), min(int(k), self.network_.n_labels)
        for few in some_rows(X):
            ranker.top_k(few, k)
            ranker.top_k(few.where(np.zeros(few.nnz, np.bool_)), k)  # rows without features have no candidates

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

        With candidates, only these are scored: by default 64 with the most votes and 64 by co-occurrence. A row with
        fewer than k candidates is filled up with the best labels of the network. If k is more than half of the number
        of candidates, the best labels of the network compete with them. If `labels` is given, all of these are scored.

        Without candidates, all labels are scored. If `precision_` is "bfloat16", the best k + 8 labels are scored again
        in float32 and ranked by that, so that a label just below them may be missed. Mean scores of an `XMLEnsemble`
        are approximate (see its description), unless `labels` is given.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.
        k : int
            Labels per row, at most the number of labels.
        labels : array of int or str, optional
            Labels to rank, as columns or as names that are strings; by default all.
        exclude : array of int or str, optional
            Labels that are never returned, such as deprecated ones, as columns or names.
        threshold : float, "micro" or "macro", optional
            Least probability of a returned label, as in `predict`.
        label_weight : array of float (L,), optional
            Value of each label if it is true, above 0. The 32 (in an ensemble 16) or k most probable labels are ranked
            by weight x probability; scores are the logarithms of these products, with softmax up to a constant per
            row. `inverse_propensity()` maximizes PSP@k; a power of it between 0 and 1 trades P@k for PSP@k.
        proba : bool
            Whether to return probabilities instead of scores; not with softmax, which needs all labels for them.
        as_csr : bool
            Whether to return a scipy CSR array (n, L) of the scores instead.

        Returns
        -------
        labels : ndarray of int32 (n, k)
            Columns of the best labels in order; of equal scores, the smaller column comes first. `classes_[labels]` are
            the names, unless rows have fewer labels, by `threshold`, `exclude` or `labels`: they are padded with -1,
            which is no label, and `[classes_[row[row >= 0]] for row in labels]` are the names.
        scores : ndarray of float32 (n, k)
            Scores as of `decision_function`, padded with -inf. With `proba`, float64, padded with 0.
        """
        X = self._read(X)
        least = None if threshold is None else self._least_probability(threshold)
        if proba:
            self._check_probabilities("proba")
        columns = None if labels is None else columns_of(labels, self.fitted_)
        ranker = self._ranker(X, label_weight, exclude)
        best, scores = self._best(X, k, ranker, columns, padded=exclude is not None)
        if least is not None or proba:
            if label_weight is None:
                probabilities = self.fitted_.probability(scores)
            else:  # scores are the logs of weight x probability
                probabilities = np.exp(scores.astype(np.float64)) / np.asarray(label_weight, np.float64)[best]
            probabilities = np.where(best >= 0, np.minimum(probabilities, 1), 0)
            scores = probabilities if proba else scores
        if least is not None:
            low = probabilities < least[best]
            best[low], scores[low] = -1, 0 if proba else -np.inf
            order = np.argsort(low, axis=1, kind="stable")  # by a threshold for each label, or weights, any may be low
            best, scores = (np.take_along_axis(each, order, axis=1) for each in (best, scores))
        if not as_csr:
            return best, scores
        kept = best >= 0
        indptr = pointers(kept.sum(axis=1))
        answer = sp.csr_array((scores[kept], best[kept], indptr), shape=(X.n_rows, self.network_.n_labels))
        answer.sort_indices()
        return answer

    def explain(self, X: Any, labels: Any = None, k: int = 5) -> list[list[Explanation]]:
        """Explain the scores of labels by words, neighbors, co-occurrence and network.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.
        labels : array of int or str (m,), optional
            Labels to explain, as columns or as names that are strings; by default the k best labels of each row.
        k : int
            Labels per row if `labels` is not given.

        Returns
        -------
        list of list of Explanation
            For each row, in the order of `labels`, or by falling score.
        """
        from .inference.explanation import explain_row  # here, so that creating an estimator does not import Numba

        X, words = self._read(X), self.fitted_.features.explained
        if labels is None:
            columns, scores = self._best(X, k, self._scorer(X))
        else:
            chosen = columns_of(labels, self.fitted_)
            scores = self._scores(X, chosen)
            columns = np.broadcast_to(chosen, scores.shape)
        explained = []
        for i in range(X.n_rows):
            row, listed = X.span(i, i + 1), columns[i] >= 0
            scorer = self._scorer(row)
            found = explain_row(scorer, row, columns[i][listed])
            if labels is None and isinstance(scorer, MeanScorer):  # its ranking may be by upper bounds of the means
                found.sort(key=lambda each: -each.score)
            else:
                known = zip(found, scores[i][listed].tolist(), strict=True)
                found = [replace(each, score=score) for each, score in known]
            names = self.classes_[[each.column for each in found]].tolist()
            explained.append([each.named(name, words) for each, name in zip(found, names, strict=True)])
        return explained

    def inverse_propensity(self, A: float = 0.55, B: float = 1.5, n_labels: int | None = None) -> np.ndarray:
        """Return the inverse propensity of each label, given its number of training rows; larger for rarer labels.

        Parameters
        ----------
        A, B : float
            See `xmlsgd.inverse_propensity`.
        n_labels : int, optional
            Number of labels to return, more than L; the additional ones had no rows.

        Returns
        -------
        ndarray of float64 (L,)

        Raises
        ------
        DataError
            If the model has learned fewer than 3 rows.
        """
        check_is_fitted(self)
        return inverse_propensity_of(self.label_counts_, self.n_samples_seen_, A, B, n_labels)

    def decision_function(self, X: Any, *, labels: Any = None) -> np.ndarray:
        """Return the scores of all labels, or of some columns.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.
        labels : array of int or str (m,), optional
            Labels to score, as columns or as names that are strings; by default all.

        Returns
        -------
        ndarray of float32 (n, L) or (n, m)
            Stacked scores, or without candidates the network's logits. `predict_proba` has calibrated probabilities.
            With two classes and one class per row, the score of the second minus that of the first, (n,).

        Raises
        ------
        MemoryEstimateError
            If the result would need more than 1 GB.
        """
        X = self._read(X)
        scores = self._scores(X, None if labels is None else columns_of(labels, self.fitted_))
        if labels is None and self.label_form_ == "multiclass" and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of all labels.

        Parameters
        ----------
        X : matrix, CSR or texts
            Rows (n, F) as in `fit`.

        Returns
        -------
        ndarray of float64 (n, L)
            Probability of each label by itself, calibrated on held-out rows if there were at least 100 training rows
            with candidates, or 1,000 for a network alone. With softmax, and with one class per row, the probabilities
            of a row sum to 1; those of a network alone are not calibrated then.

        Raises
        ------
        MemoryEstimateError
            If the result would need more than 1 GB.
        """
        X = self._read(X)
        check_dense(X.n_rows, self.network_.n_labels, 8)
        probabilities = np.empty((X.n_rows, self.network_.n_labels))
        for rows, Z in self._logits(X):
            probabilities[rows] = self.fitted_.probability(Z)
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy with one class per row, or P@1 (a fraction) for multi-label data.

        Labels that the model does not know count as missed. An indicator must have the columns of the model.

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
        best, _ = self.predict_topk(X, 1)
        check_lengths(len(best), labels.Y.n_rows)
        return float(np.average(labels.Y.has(best)[:, 0], weights=read_sample_weight(sample_weight, len(best))))

    def _least_probability(self, threshold: Any) -> np.ndarray:
        """Return the threshold of each label, float64 (L,)."""
        self._check_probabilities("threshold")
        if isinstance(threshold, str) and threshold in ("micro", "macro"):
            threshold = self.thresholds_[threshold]
        elif not is_number(threshold) or not 0 <= threshold <= 1:
            raise DataError(f"threshold: must be a probability in [0, 1], 'micro' or 'macro', got {shorten(threshold)}")
        return np.broadcast_to(np.asarray(threshold, np.float64), self.network_.n_labels)

    def _check_probabilities(self, name: str) -> None:
        """Raise `DataError`, which names parameter `name`, if scores are not probabilities of single labels."""
        if not self.fitted_.has_probabilities:
            if self.label_form_ == "multiclass":
                raise DataError(f"{name}: works for sets of labels, got one class a row; use predict_proba for these")
            wanted = "needs a probability of each label by itself, as with loss='bce'"
            raise DataError(f"{name}: {wanted}, got loss {self.network_.loss!r}")

    def _best(
        self, X: CSR, k: Any, ranker: Ranker, columns: np.ndarray | None = None, padded: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best labels of each row and their finite scores; padded : whether rows may have fewer."""
        if not is_positive_integer(k):
            raise DataError(f"k: must be an integer of at least 1, got {shorten(k)}")
        best, scores = ranker.top_k(X, min(int(k), self.network_.n_labels), columns)
        # Without padding, -1 means that a score is not finite.
        check_finite(scores, X, counted=best >= 0 if padded or columns is not None else None)
        return best, scores

    def _scores(self, X: CSR, columns: np.ndarray | None) -> np.ndarray:
        """Return the scores of all labels, or those of some columns, float32 (n, L) or (n, m)."""
        n_columns = self.network_.n_labels if columns is None else len(columns)
        check_dense(X.n_rows, n_columns, 4)
        scores = np.empty((X.n_rows, n_columns), np.float32)
        for rows, Z in self._logits(X, columns):
            scores[rows] = Z
        return scores

    def _labels_by_scores(self, X: CSR) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and labels of all pairs with at least half the probability of the best label, by softmax."""
        found = [(np.empty(0, np.intp), np.empty(0, np.intp))]
        for rows, Z in self._logits(X):
            row, label = np.nonzero(Z - Z.max(axis=1, keepdims=True) >= LOG_HALF)
            found.append((rows[row], label))
        row, label = map(np.concatenate, zip(*found, strict=True))
        return row, label

    def _ranked_probabilities(self, X: CSR, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best labels of some rows of X, and their probabilities, both (rows, k)."""
        labels, scores = self._scorer(X).top_k(X.take(rows), k)
        check_finite(scores, X, rows)
        return labels, self.fitted_.probability(scores)

    def _logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the blocks of `Scorer.logits`, checked to be finite."""
        for rows, Z in self._scorer(X).logits(X, columns):
            check_finite(Z, X, rows)
            yield rows, Z
