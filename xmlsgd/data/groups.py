"""Groups of rows that are alike, such as the records of one library: all are held out, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, shorten


def read_groups(groups: Any, n_rows: int) -> NDArray[np.int64] | None:
    """Return the group of each row as a number from 0, int64 (n,); None where none are given."""
    if groups is None:
        return None
    given = np.asarray(groups)
    if given.shape != (n_rows,) or given.dtype.kind not in "iuUOSb":
        raise DataError(f"groups: must have a text or an integer for each of {n_rows} rows, got {shorten(groups)}")
    try:
        return np.unique(given, return_inverse=True)[1].astype(np.int64)
    except TypeError as error:
        raise DataError(f"groups: must be all texts or all integers, got {shorten(groups)}") from error


def draw_rows(n_rows: int, n: int, groups: NDArray[np.int64] | None, random: np.random.Generator) -> NDArray[np.intp]:
    """Return `n` rows at random, or with groups the rows of as many whole ones as fit in, ascending."""
    if groups is None:
        return np.sort(random.permutation(n_rows)[:n])
    sizes = np.bincount(groups)
    taken, n_left = np.zeros(len(sizes), np.bool_), n
    for group in random.permutation(np.flatnonzero(sizes)):
        if sizes[group] <= n_left:
            taken[group] = True
            n_left -= sizes[group]
    return np.flatnonzero(taken[groups])
