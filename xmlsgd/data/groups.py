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
