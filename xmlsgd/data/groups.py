"""Groups of rows that are alike, such as the records of one library: all are held out, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, shorten


def read_groups(groups: Any, n_rows: int) -> NDArray[np.int64] | None:
    """Return the group of each row as a number from 0, int64 (n,); None where none are given."""
    return None if groups is None else named_groups(groups, n_rows)[1]


def named_groups(groups: Any, n_rows: int) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the names of the groups, ascending, and the position in them of each row's group, int64 (n,)."""
    given = np.asarray(groups)
    if given.shape != (n_rows,) or given.dtype.kind not in "iuUOSb":
        raise DataError(f"groups: must have a text or an integer for each of {n_rows} rows, got {shorten(groups)}")
    try:
        names, of_row = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise DataError(f"groups: must be all texts or all integers, got {shorten(groups)}") from error
    return names, of_row.astype(np.int64)


def draw_rows(n_rows: int, n: int, groups: NDArray[np.int64] | None, random: np.random.Generator) -> NDArray[np.intp]:
    """Return `n` rows at random, or with groups the rows of as many whole ones as fit in, ascending.

    Each row has a random key, and the lowest are drawn: where rows are added behind, hardly any other of the earlier
    ones is drawn, so that training that goes on does not measure itself by rows that it has learned.
    """
    keys = random.random(n_rows)
    if groups is None:
        return np.sort(np.argsort(keys)[:n])
    sizes = np.bincount(groups)
    taken, n_left = np.zeros(len(sizes), np.bool_), n
    present, first = np.unique(groups, return_index=True)
    for group in present[np.argsort(keys[first])]:
        if sizes[group] <= n_left:
            taken[group] = True
            n_left -= sizes[group]
    return np.flatnonzero(taken[groups])
