"""Pairs of a row and a label that are left out of rankings, such as reciprocal pairs, before metrics are computed."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ..data.csr import CSR
from ..errors import DataError
from .comparison import as_rows, checked_ranking


def drop_pairs(labels: ArrayLike, scores: ArrayLike, pairs: ArrayLike) -> tuple[NDArray, NDArray]:
    """Drop pairs of a row and a label from a ranking; the labels behind them move up.

    Parameters
    ----------
    labels, scores : ndarray (n, k)
        A ranking and its scores, as `predict_topk` returns them. If it has as many labels more than needed as a row
        has pairs, enough labels remain.
    pairs : array of int (m, 2)
        Rows and labels (columns), both from 0.

    Returns
    -------
    labels, scores : ndarray (n, k)
        Padded at the end with -1 and -inf.

    Raises
    ------
    DataError
        If the shapes do not fit, or a pair has no row.

    Notes
    -----
    True labels do not change: a true label that is dropped counts as a miss.

    Examples
    --------
    >>> import numpy as np
    >>> from xmlsgd.metrics import drop_pairs
    >>> drop_pairs([[4, 2, 7]], [[0.9, 0.5, 0.1]], [[0, 4]])[0]
    array([[ 2,  7, -1]])
    """
    ranking, values = checked_ranking(labels, scores, "scores")
    dropped = as_rows(pairs, "pairs") if np.size(pairs) else np.empty((0, 2), np.int64)
    if dropped.ndim != 2 or dropped.shape[1] != 2 or dropped.dtype.kind not in "iu":
        raise DataError(f"pairs: must be integers of shape (m, 2), got {dropped.dtype} of shape {dropped.shape}")
    bad = dropped[(dropped < 0).any(axis=1) | (dropped[:, 0] >= len(ranking))]
    if len(bad):
        raise DataError(f"pairs: must have rows in [0, {len(ranking)}) and labels from 0, got {bad[0].tolist()}")
    ranked = dropped[dropped[:, 1] <= ranking.max(initial=0)]
    return without_entries(ranking.astype(np.int64), values, matrix_of_pairs(ranked.astype(np.int64), len(ranking)))


def matrix_of_pairs(pairs: np.ndarray, n_rows: int) -> CSR:
    """Return the matrix with an entry for each pair of row and column, (m, 2)."""
    shape = n_rows, int(pairs[:, 1].max(initial=0)) + 1
    return CSR.from_scipy(sp.csr_array((np.ones(len(pairs), np.float32), tuple(pairs.T)), shape=shape))


def without_entries(labels: np.ndarray, scores: np.ndarray, dropped: CSR) -> tuple[np.ndarray, np.ndarray]:
    """Return a ranking and its scores, (n, k), without the labels for which `dropped` has an entry in their row."""
    gone = dropped.has(labels)
    order = np.argsort(gone, axis=1, kind="stable")
    kept = np.where(gone, -1, labels), np.where(gone, -np.inf, scores)
    return np.take_along_axis(kept[0], order, axis=1), np.take_along_axis(kept[1], order, axis=1)
