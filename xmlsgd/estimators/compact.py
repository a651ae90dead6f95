"""The arrays of a model in a quarter of their bytes, to predict only: weights as int8, numbers no wider than they need.

A row of weights shares a scale, its largest size over 127: what rounding moves is below what training leaves open
(docs/decisions.md has P@k before and after). Biases stay float32. Reading makes the usual arrays of it again.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ..csr import check_pointers
from ..errors import DataError, ModelFileError
from ..params import Layout, zeros

ROWS = 1 << 14  # worked on at once, so that scratch arrays stay small beside the weights
LARGEST = 127
LINEAR = "shortlist_linear"
HALVES = "shortlist_postings_data"  # entries of rows of norm 1: float16 says all that a cosine needs


def compacted(arrays: dict[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    """Return the arrays of a model with the parameters of `layout` in their small form."""
    small = {name: _narrow(array) for name, array in arrays.items() if name not in ("params", f"{LINEAR}_data")}
    for name, tensor in layout.views(arrays["params"]).items():
        if tensor.ndim == 1:
            small[name] = tensor
        else:
            starts = np.arange(len(tensor) + 1) * tensor.shape[1]
            small[f"{name}_int8"], small[f"{name}_scales"] = _rounded(tensor.reshape(-1), starts)
    if f"{LINEAR}_data" in arrays:
        weights, starts = arrays[f"{LINEAR}_data"], arrays[f"{LINEAR}_indptr"]
        small[f"{LINEAR}_int8"], small[f"{LINEAR}_scales"] = _rounded(weights, starts)
    if HALVES in arrays:
        small[HALVES] = arrays[HALVES].astype(np.float16)
    return small


def expanded(arrays: dict[str, np.ndarray], layout: Layout, path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of which `compacted` made these; raises `ModelFileError` for what it cannot have made."""
    large = {}
    for name, array in arrays.items():
        if name == HALVES and array.dtype == np.float16:
            array = array.astype(np.float32)
        elif array.dtype in (np.uint8, np.uint16, np.uint32) and name.startswith("shortlist_"):
            array = array.astype(np.int64 if name.endswith("_indptr") else np.int32)
        large[name] = array
    parts = {
        name: (_taken(large, name, np.float32, shape[0], path),)
        if len(shape) == 1
        else (
            _taken(large, f"{name}_int8", np.int8, math.prod(shape), path).reshape(shape),
            _taken(large, f"{name}_scales", np.float32, shape[0], path)[:, None],
        )
        for name, shape in layout.shapes.items()
    }
    flat = large["params"] = zeros(layout.size)  # now that all are there: a damaged shape may ask for any size
    for name, tensor in layout.views(flat).items():
        np.multiply(parts[name][0], parts[name][-1] if tensor.ndim > 1 else np.float32(1), out=tensor)
    if f"{LINEAR}_indptr" in large:
        large[f"{LINEAR}_data"] = _linear_data(large, path)
    return large


def _linear_data(arrays: dict[str, np.ndarray], path: Path) -> np.ndarray:
    """Take the weights of the linear path out of the arrays, float32."""
    n_pointers = max(arrays[f"{LINEAR}_indptr"].size, 1)
    indptr = _taken({**arrays}, f"{LINEAR}_indptr", np.int64, n_pointers, path)  # which stays among the others
    scales = _taken(arrays, f"{LINEAR}_scales", np.float32, n_pointers - 1, path)
    weights = _taken(arrays, f"{LINEAR}_int8", np.int8, arrays.get(f"{LINEAR}_int8", indptr[:0]).size, path)
    try:
        check_pointers(indptr, len(weights), f"{path}: {LINEAR}_indptr")
    except DataError as error:
        raise ModelFileError(str(error)) from error
    return np.multiply(weights, np.repeat(scales, np.diff(indptr)), dtype=np.float32)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Return indices and pointers in the narrowest unsigned type that holds them, anything else as it is."""
    if array.dtype not in (np.int32, np.int64) or not array.size or array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(int(array.max())))


def _rounded(weights: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights as int8 and the scale, float32, of each row, which lies from starts[i] to starts[i + 1]."""
    small, scales = np.zeros(len(weights), np.int8), np.ones(len(starts) - 1, np.float32)
    for first in range(0, len(scales), ROWS):
        ends = starts[first : first + ROWS + 1]
        part, lengths = weights[ends[0] : ends[-1]], np.diff(ends)
        some = lengths > 0
        if some.any():
            largest = np.zeros(len(lengths), np.float32)
            largest[some] = np.maximum.reduceat(np.abs(part), (ends[:-1] - ends[0])[some])
            found = scales[first : first + ROWS]
            np.divide(largest, np.float32(LARGEST), out=found, where=largest > 0)
            np.maximum(found, np.finfo(np.float32).tiny, out=found)  # below it a quotient may be any number
            small[ends[0] : ends[-1]] = np.rint(part / np.repeat(found, lengths))
    return small, scales


def _taken(arrays: dict[str, np.ndarray], name: str, kind: type, length: int, path: Path) -> np.ndarray:
    """Take an array out of the others; raise where it is missing or of another type or length."""
    found = arrays.pop(name, None)
    if found is None or found.dtype != kind or found.shape != (length,):
        got = "none" if found is None else f"{found.dtype} {found.shape}"
        raise ModelFileError(f"{path}: {name} must be {np.dtype(kind)} ({length},), got {got}")
    return found
