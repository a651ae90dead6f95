"""Metrics averaged over rows: precision, recall and nDCG at k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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


def cumulated_mean(gains: np.ndarray) -> NDArray[np.float64]:
    """Return mean_i sum_{j<=k} gains_ij for each k, given gains (n, k)."""
    return np.cumsum(gains.mean(axis=0, dtype=np.float64))


def mean_dcg(gains: np.ndarray, n_true: np.ndarray) -> NDArray[np.float64]:
    """Return mean_i sum_{j<=k} gains_ij d_j / sum_{j<=min(k,n_i)} d_j for each k, given max(n_i, 1) (n, 1)."""
    ranks = np.arange(1, gains.shape[1] + 1)
    d = 1 / np.log2(ranks + 1)
    ideal = np.cumsum(d)[np.minimum(n_true, ranks) - 1]
    return np.asarray((np.cumsum(gains * d, axis=1) / ideal).mean(axis=0))
