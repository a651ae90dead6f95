"""Calibration of probabilities: how often labels that are predicted with probability p are true."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.validation import is_positive_integer
from ..errors import DataError, shorten
from .comparison import Matrix, checked_ranking, compare, quotient

MAX_BINS = 1_000_000


class Reliability(NamedTuple):
    """Pairs of a row and a predicted label in bins of equal width of their probability, lowest first.

    Attributes
    ----------
    edges : ndarray of float64 (n_bins + 1,)
        Ends of the bins, from 0 to 1.
    count : ndarray of int64 (n_bins,)
        Number of pairs.
    probability, true : ndarray of float64 (n_bins,)
        Mean probability of the pairs, and share of them that are true; 0 in an empty bin.
    """

    edges: NDArray[np.float64]
    count: NDArray[np.int64]
    probability: NDArray[np.float64]
    true: NDArray[np.float64]


def reliability(Y_true: Matrix, labels: ArrayLike, probabilities: ArrayLike, n_bins: int = 10) -> Reliability:
    """Compare probabilities of predicted labels with how often the labels are true: a reliability diagram as a table.

    Parameters
    ----------
    Y_true : sparse or dense matrix of shape (n, L)
        True labels.
    labels : array of int, shape (n, k)
        Predicted labels; -1 where a row has fewer.
    probabilities : array of float, shape (n, k)
        Their probabilities; those of label -1 do not count.
    n_bins : int
        Number of bins of [0, 1].

    Returns
    -------
    Reliability
        Edges, number of pairs, mean probability and share of true pairs of each bin.

    Raises
    ------
    DataError
        If the inputs do not fit each other, or a probability is outside [0, 1].
    """
    ranking, chances = checked_ranking(labels, probabilities, "probabilities")
    if not is_positive_integer(n_bins) or n_bins > MAX_BINS:
        raise DataError(f"n_bins: must be an integer from 1 to {MAX_BINS}, got {shorten(n_bins)}")
    compared = compare(Y_true, ranking, max(ranking.shape[1], 1))
    hits, chances = compared.hits[:, : ranking.shape[1]][ranking >= 0], chances[ranking >= 0].astype(np.float64)
    bad = chances[~((chances >= 0) & (chances <= 1))]
    if len(bad):
        raise DataError(f"probabilities: must be in [0, 1], got {bad[0]:g}; predict_topk(..., proba=True) returns them")
    bins = np.minimum((chances * n_bins).astype(np.int64), n_bins - 1)
    count, total, true = (np.bincount(bins, each, n_bins) for each in (None, chances, hits))
    return Reliability(np.linspace(0, 1, n_bins + 1), count, quotient(total, count), quotient(true, count))


def expected_calibration_error(Y_true: Matrix, labels: ArrayLike, probabilities: ArrayLike, n_bins: int = 10) -> float:
    """Compute the mean distance between probability and share of true pairs: sum_b (n_b / n) abs(p_b - t_b).

    Bin b has n_b of the n pairs of a row and a predicted label, mean probability p_b and share of true pairs t_b
    (Naeini, Cooper, Hauskrecht, AAAI 2015; Guo et al., ICML 2017).

    Parameters and errors are those of `reliability`.

    Returns
    -------
    float
        In [0, 1]; 0 without predicted labels.
    """
    table = reliability(Y_true, labels, probabilities, n_bins)
    return float(np.sum(table.count * np.abs(table.probability - table.true)) / max(table.count.sum(), 1))
