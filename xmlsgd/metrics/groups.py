"""Metrics by groups of rows, such as the records of one library: means in which each group counts the same."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.validation import named_groups
from .comparison import Matrix, compare


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
