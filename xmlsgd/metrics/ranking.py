"""Metrics averaged over rows: precision, recall and nDCG at k, and precision of groups of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.validation import named_groups
from .comparison import Matrix, compare


def precision_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> NDArray[np.float64]:
    """Compute precision at 1..k: P@k = mean_i (1/k) sum_{j<=k} h_ij.

    Parameters
    ----------
    Y_true : sparse or dense matrix of shape (n, L)
        True labels.
    predicted : ranking of shape (n, any) or scores of shape (n, L)
        Predicted labels; see `xmlsgd.metrics`.
    k : int
        Largest rank.

    Returns
    -------
    ndarray of shape (k,)
        Values in [0, 1]. The denominator is k even if a row has fewer true labels.

    Raises
    ------
    DataError
        If the inputs do not fit each other.
    """
    return cumulated_mean(compare(Y_true, predicted, k).hits) / np.arange(1, k + 1)


def recall_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> NDArray[np.float64]:
    """Compute recall at 1..k: R@k = mean_i sum_{j<=k} h_ij / max(n_i, 1).

    Parameters, result and errors are those of `precision_at_k`.
    """
    compared = compare(Y_true, predicted, k)
    return cumulated_mean(compared.hits / compared.at_least_one)


def ndcg_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> NDArray[np.float64]:
    """Compute nDCG at 1..k: mean_i sum_{j<=k} h_ij d_j / sum_{j<=min(k,n_i)} d_j, 0 where n_i = 0.

    Parameters, result and errors are those of `precision_at_k`.
    """
    compared = compare(Y_true, predicted, k)
    return mean_dcg(compared.hits, compared.at_least_one)


class GroupedPrecision(NamedTuple):
    """P@k of groups of rows.

    Attributes
    ----------
    groups : ndarray
        Names of the groups.
    precision : ndarray of float64 (groups,)
        P@k of each.
    mean, std : float
        Their mean and standard deviation.
    """

    groups: NDArray
    precision: NDArray[np.float64]
    mean: float
    std: float


def precision_by_group(Y_true: Matrix, predicted: Matrix, groups: ArrayLike, k: int = 5) -> GroupedPrecision:
    """Compute P@k of each group of rows.

    Parameters
    ----------
    Y_true, predicted, k
        As in `precision_at_k`.
    groups : array of shape (n,)
        The group of each row: texts or integers.

    Returns
    -------
    GroupedPrecision
        Its mean counts each group the same, however many rows it has; `std` is the spread between groups.

    Raises
    ------
    DataError
        If the inputs do not fit each other.
    """
    hits = compare(Y_true, predicted, k).hits
    names, of_row = named_groups(groups, len(hits))
    precision = np.bincount(of_row, hits.mean(axis=1)) / np.bincount(of_row)
    return GroupedPrecision(names, precision, float(precision.mean()), float(precision.std()))


def cumulated_mean(gains: np.ndarray) -> NDArray[np.float64]:
    """Return mean_i sum_{j<=k} gains_ij for each k, given gains (n, k)."""
    return np.cumsum(gains.mean(axis=0, dtype=np.float64))


def mean_dcg(gains: np.ndarray, n_true: np.ndarray) -> NDArray[np.float64]:
    """Return mean_i sum_{j<=k} gains_ij d_j / sum_{j<=min(k,n_i)} d_j for each k, given max(n_i, 1) (n, 1)."""
    ranks = np.arange(1, gains.shape[1] + 1)
    d = 1 / np.log2(ranks + 1)
    ideal = np.cumsum(d)[np.minimum(n_true, ranks) - 1]
    return np.asarray((np.cumsum(gains * d, axis=1) / ideal).mean(axis=0))
