"""Convert columns and tables of pandas, Polars, PyArrow and Hugging Face datasets to lists and arrays.

They are recognized by their attributes, so that no library is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def column_names(data: Any) -> list[Any] | None:
    """Return the names of the columns of a table; None for any other object."""
    shape = getattr(data, "shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2:
        return None
    names = getattr(data, "column_names", None)  # first, as `columns` of Arrow are the columns themselves
    if names is None:
        names = getattr(data, "columns", None)
    return None if names is None or callable(names) else list(names)


def as_list(data: Any) -> Any:
    """Return a column as a list, or as an array if it holds NumPy numbers; return any other object unchanged."""
    if isinstance(data, np.ndarray | list | tuple | str | bytes) or column_names(data) is not None:
        return data
    dtype = getattr(data, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind != "O" and getattr(data, "ndim", 0) == 1:
        return np.asarray(data)
    # Not by NumPy: of a Polars column, it would give every text the width of the longest one.
    convert = getattr(data, "to_pylist", None) or getattr(data, "to_list", None)
    if convert is not None:
        return convert()
    if isinstance(data, Sequence):
        try:
            return list(data[:])  # by the slice, a column of `datasets` is read at once, not row by row
        except TypeError:
            return list(data)
    return data


def is_missing(value: Any) -> bool:
    """Return whether a value means that a label or text is missing: None, NaN, and NA and NaT of pandas."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def only_column(data: Any) -> Any:
    """Convert a column, or the only column of a table, as `as_list` does; return any other object unchanged."""
    names = column_names(data)
    return as_list(data[names[0]]) if names is not None and len(names) == 1 else as_list(data)


def as_table(data: Any) -> Any:
    """Convert a table of `datasets`, whose rows are dictionaries, to Arrow; return any other object unchanged."""
    return data.with_format("arrow")[:] if hasattr(data, "with_format") else data


def as_matrix(data: Any) -> Any:
    """Convert a table of numbers to a form that NumPy reads as a matrix; return any other object unchanged."""
    names, data = column_names(data), as_table(data)
    if names is None:
        return data
    columns = [np.asarray(as_list(data[name])) for name in names] if np.asarray(data[:1]).dtype == object else []
    is_numeric = bool(columns) and all(column.ndim == 1 and column.dtype.kind in "biuf" for column in columns)
    return np.stack(columns, axis=1) if is_numeric else data
