"""Metrics by label: macro precision, recall and F1, micro F1 and coverage at k, and scores of predicted sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .comparison import Compared, Matrix, compare, labels_of, quotient


def macro_precision_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> NDArray[np.float64]:
    """Compute the mean over labels of tp / (tp + fp) in the top 1..k, with 0/0 = 0.

    Parameters, result and errors are those of `precision_at_k`.
    """
    return _macro(compare(Y_true, predicted, k), lambda hit, predicted, true: (hit, predicted))


def macro_recall_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> NDArray[np.float64]:
    """Compute the mean over labels of tp / (tp + fn) in the top 1..k, with 0/0 = 0.

    Parameters, result and errors are those of `precision_at_k`.
    """
    return _macro(compare(Y_true, predicted, k), lambda hit, predicted, true: (hit, true))


def macro_f1_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> NDArray[np.float64]:
    """Compute the mean over labels of 2 tp / (2 tp + fp + fn) in the top 1..k, with 0/0 = 0.

    Parameters, result and errors are those of `precision_at_k`.
    """
    return _macro(compare(Y_true, predicted, k), lambda hit, predicted, true: (2 * hit, predicted + true))


def micro_f1_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> NDArray[np.float64]:
    """Compute 2 TP / (2 TP + FP + FN) in the top 1..k, each summed over labels, with 0/0 = 0.

    Parameters, result and errors are those of `precision_at_k`.
    """
    compared = compare(Y_true, predicted, k)
    n_hits = np.cumsum(compared.hits.sum(axis=0))
    n_predicted = np.cumsum((compared.labels >= 0).sum(axis=0))
    return quotient(2 * n_hits, n_predicted + compared.Y.nnz)


def coverage_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> NDArray[np.float64]:
    """Compute the share of the labels in `Y_true` that are predicted correctly at least once in the top 1..k.

    Parameters, result and errors are those of `precision_at_k`.
    """
    compared = compare(Y_true, predicted, k)
    n_found = [np.count_nonzero(hit) for hit, _ in _per_label(compared)]
    return quotient(np.array(n_found), np.full(k, np.count_nonzero(np.bincount(compared.Y.indices))))


class LabelScores(NamedTuple):
    """Scores of each label.

    Attributes
    ----------
    n_true, n_predicted, n_hits : ndarray of int64 (L,)
        Rows that have the label, rows that it is predicted for, and rows that are both.
    precision, recall, f1 : ndarray of float64 (L,)
        0 where undefined.
    """

    n_true: NDArray[np.int64]
    n_predicted: NDArray[np.int64]
    n_hits: NDArray[np.int64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over all labels."""
        return float(self.f1.mean())

    @property
    def micro_f1(self) -> float:
        """F1 of all pairs of a row and a label: 2 TP / (2 TP + FP + FN)."""
        return float(2 * self.n_hits.sum() / max(self.n_true.sum() + self.n_predicted.sum(), 1))


def label_scores(Y_true: Matrix, Y_predicted: Matrix) -> LabelScores:
    """Compare true and predicted labels, label by label.

    Parameters
    ----------
    Y_true, Y_predicted : sparse or dense matrix of shape (n, L)
        True labels and predicted ones, as `predict` returns them, of 0 and 1. `Y_predicted` may lack the last columns,
        those of labels that the model does not know.

    Returns
    -------
    LabelScores

    Raises
    ------
    DataError
        If the rows differ in number, the prediction has more columns, or a value is neither 0 nor 1.
    """
    true, predicted = labels_of(Y_true, "Y_true"), labels_of(Y_predicted, "Y_predicted")
    for name, Y in (("Y_true", true), ("Y_predicted", predicted)):
        if len(other := Y.data[Y.data != 1]):
            remedy = "pass an indicator, as predict returns it, not a ranking or scores"
            raise DataError(f"{name}: must hold 0 and 1, got {other[0]:g}; {remedy}")
    if predicted.n_cols < true.n_cols:
        predicted = replace(predicted, n_cols=true.n_cols)
    if true.shape != predicted.shape:
        raise DataError(f"Y_predicted: must have the shape {true.shape} of Y_true, got {predicted.shape}")
    both = np.intersect1d(true.entry_keys(), predicted.entry_keys(), assume_unique=True)
    hits = np.bincount(both % true.n_cols, minlength=true.n_cols)
    n_true, n_predicted = (Y.column_counts() for Y in (true, predicted))
    shares = quotient(hits, n_predicted), quotient(hits, n_true), quotient(2 * hits, n_true + n_predicted)
    return LabelScores(n_true, n_predicted, hits, *shares)


def _per_label(compared: Compared) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each k how often each label is predicted correctly in the top k, and how often at all, int64 (L,)."""
    n_hits = np.zeros(compared.Y.n_cols, dtype=np.int64)
    n_predicted = np.zeros(compared.Y.n_cols, dtype=np.int64)
    for labels, hits in zip(compared.labels.T, compared.hits.T, strict=True):
        n_hits += np.bincount(labels[hits], minlength=len(n_hits))
        n_predicted += np.bincount(labels[labels >= 0], minlength=len(n_hits))
        yield n_hits, n_predicted


def _macro(compared: Compared, fraction: Callable[..., tuple[np.ndarray, np.ndarray]]) -> NDArray[np.float64]:
    """Return the mean over all labels of `fraction(hits, predicted, true)` for each k."""
    n_true = compared.Y.column_counts()
    sums = [quotient(*fraction(hit, predicted, n_true)).sum() for hit, predicted in _per_label(compared)]
    return np.array(sums) / max(len(n_true), 1)
