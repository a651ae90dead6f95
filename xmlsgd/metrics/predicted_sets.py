"""Metrics of predicted sets of labels, as by thresholds: precision, recall and F1 of labels, micro and macro F1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .comparison import Matrix, labels_of, quotient


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
        True labels and predicted ones, as `predict` returns them.

    Returns
    -------
    LabelScores

    Raises
    ------
    DataError
        If the shapes differ.
    """
    true, predicted = labels_of(Y_true, "Y_true"), labels_of(Y_predicted, "Y_predicted")
    if true.shape != predicted.shape:
        raise DataError(f"Y_predicted: must have the shape {true.shape} of Y_true, got {predicted.shape}")
    both = np.intersect1d(true.entry_keys(), predicted.entry_keys(), assume_unique=True)
    hits = np.bincount(both % true.n_cols, minlength=true.n_cols)
    n_true, n_predicted = (Y.column_counts() for Y in (true, predicted))
    shares = quotient(hits, n_predicted), quotient(hits, n_true), quotient(2 * hits, n_true + n_predicted)
    return LabelScores(n_true, n_predicted, hits, *shares)
