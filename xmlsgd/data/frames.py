"""Columns and tables of data-frame libraries as lists and arrays: pandas, Polars, PyArrow, Hugging Face datasets.

They are known by what they can do, so that no library is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def column_names(data: Any) -> list[Any] | None:
    """Return the names of the columns of a table, None for anything else."""
    shape = getattr(data, "shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2:
        return None
    names = getattr(data, "column_names", None)  # of Arrow, whose `columns` are the columns themselves
    if names is None:
        names = getattr(data, "columns", None)
    return None if names is None or callable(names) else list(names)


def as_list(data: Any) -> Any:
    """Return a column as a list, or as an array if it holds numbers of NumPy; anything else as it is."""
    if isinstance(data, np.ndarray | list | tuple | str | bytes) or column_names(data) is not None:
        return data
    dtype = getattr(data, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind != "O" and getattr(data, "ndim", 0) == 1:
        return np.asarray(data)
    # Not by NumPy: Polars would make texts of one width, that of the longest.
    convert = getattr(data, "to_pylist", None) or getattr(data, "to_list", None)
    if convert is not None:
        return convert()
    if isinstance(data, Sequence):
        try:
            return list(data[:])  # a column of `datasets` is read at once, and row by row without the slice
        except TypeError:
            return list(data)
    return data


def only_column(data: Any) -> Any:
    """Return the only column of a table as a list or an array, and a column alike; anything else as it is."""
    names = column_names(data)
    return as_list(data[names[0]]) if names is not None and len(names) == 1 else as_list(data)


def as_table(data: Any) -> Any:
    """Return a table of `datasets`, whose rows are dictionaries, as one of Arrow; anything else as it is."""
    return data.with_format("arrow")[:] if hasattr(data, "with_format") else data


def as_matrix(data: Any) -> Any:
    """Return a table as what NumPy reads as a matrix of numbers; anything else as it is."""
    names, data = column_names(data), as_table(data)
    if names is None:
        return data
    columns = [np.asarray(as_list(data[name])) for name in names] if np.asarray(data[:1]).dtype == object else []
    is_numeric = bool(columns) and all(column.ndim == 1 and column.dtype.kind in "biuf" for column in columns)
    return np.stack(columns, axis=1) if is_numeric else data
