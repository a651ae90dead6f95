"""Metrics averaged over labels: macro precision, recall and F1, micro F1, coverage, all at k."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, shorten
from .comparison import Compared, Matrix, compare, quotient


def macro_precision_at_k(
    Y_true: Matrix, predicted: Matrix, k: int = 5, labels: Literal["all", "seen"] = "all"
) -> NDArray[np.float64]:
    """Compute the mean over labels of tp / (tp + fp) in the top 1..k, with 0/0 = 0.

    Parameters
    ----------
    Y_true, predicted, k
        As in `precision_at_k`.
    labels : {"all", "seen"}
        Average over all L labels, or over those that a row of `Y_true` has.

    Returns
    -------
    ndarray of shape (k,)
        The metric at 1..k.

    Raises
    ------
    DataError
        If the inputs do not fit each other.
    """
    return _macro(compare(Y_true, predicted, k), labels, lambda hit, predicted, true: (hit, predicted))


def macro_recall_at_k(
    Y_true: Matrix, predicted: Matrix, k: int = 5, labels: Literal["all", "seen"] = "all"
) -> NDArray[np.float64]:
    """Compute the mean over labels of tp / (tp + fn) in the top 1..k, with 0/0 = 0.

    Parameters, result and errors are those of `macro_precision_at_k`.
    """
    return _macro(compare(Y_true, predicted, k), labels, lambda hit, predicted, true: (hit, true))


def macro_f1_at_k(
    Y_true: Matrix, predicted: Matrix, k: int = 5, labels: Literal["all", "seen"] = "all"
) -> NDArray[np.float64]:
    """Compute the mean over labels of 2 tp / (2 tp + fp + fn) in the top 1..k, with 0/0 = 0.

    Parameters, result and errors are those of `macro_precision_at_k`.
    """
    return _macro(compare(Y_true, predicted, k), labels, lambda hit, predicted, true: (2 * hit, predicted + true))


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


def _per_label(compared: Compared) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each k how often each label is predicted correctly, and predicted, in the top k: both int64 (L,)."""
    n_hits = np.zeros(compared.Y.n_cols, dtype=np.int64)
    n_predicted = np.zeros(compared.Y.n_cols, dtype=np.int64)
    for labels, hits in zip(compared.labels.T, compared.hits.T, strict=True):
        n_hits += np.bincount(labels[hits], minlength=len(n_hits))
        n_predicted += np.bincount(labels[labels >= 0], minlength=len(n_hits))
        yield n_hits, n_predicted


def _macro(
    compared: Compared, labels: str, fraction: Callable[..., tuple[np.ndarray, np.ndarray]]
) -> NDArray[np.float64]:
    """Return the mean over labels of `fraction(hits, predicted, true)` for each k."""
    n_true = compared.Y.column_counts()
    if labels not in ("all", "seen"):
        raise DataError(f'labels: must be "all" or "seen", got {shorten(labels)}')
    chosen = n_true > 0 if labels == "seen" else np.ones(len(n_true), dtype=bool)
    sums = [quotient(*fraction(hit, predicted, n_true))[chosen].sum() for hit, predicted in _per_label(compared)]
    return np.array(sums) / max(np.count_nonzero(chosen), 1)
