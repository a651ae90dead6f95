"""A shortlist to predict with, in a third of its bytes: narrow indices and values, weights in hash tables of int8.

Nothing of it is made anew when it is read: kernels take the arrays as they lie in the folder, mapped, and check
pointers and indices where they follow them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data.csr import check_pointers, pointers
from ..devices.compact import compacted
from ..devices.cpu.kernels.margins import hash_weights
from ..errors import DataError, ModelFileError
from .knn import VALUES
from .linear import Margins, Tables, table_starts

PREFIX = "shortlist_"  # of the names of arrays in a model's folder
ROOM = 1.5  # places of a hash table for each weight
NARROW = np.iinfo(np.uint16).max  # rows, features and labels up to here have numbers of two bytes


@dataclass(frozen=True, eq=False)
class CompactLinear(Margins):
    """The linear path as tables of int8, with a scale a label. tables : see `Tables`. bias : float32 (L,)."""

    tables: Tables
    bias: np.ndarray


def compact_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a shortlist (`to_arrays`) in their small form."""
    arrays = {name.removeprefix(PREFIX): array for name, array in arrays.items()}
    small = {name: array for name, array in arrays.items() if not name.startswith("linear_")}
    features, indptr = arrays["linear_indices"], arrays["linear_indptr"]
    sizes = len(arrays["postings_indptr"]), len(arrays["labels_indptr"]), len(indptr)
    kind = np.uint16 if max(sizes) - 1 <= NARROW else np.int32
    for name in ("postings_indices", "labels_indices"):
        small[name] = arrays[name].astype(kind)
    small["postings_int16"] = np.rint(small.pop("postings_data") * np.float32(VALUES)).astype(np.int16)
    weights, scales = compacted(arrays["linear_data"], indptr)
    kept = weights != 0
    indptr = pointers(kept)[indptr]
    starts = table_starts(indptr, ROOM)
    keys, values = np.zeros(starts[-1], kind), np.zeros(starts[-1], np.int8)
    hash_weights.alone(indptr, features[kept], weights[kept], starts, keys, values)
    tables = {"starts": starts, "keys": keys, "int8": values, "scales": scales}
    small |= {f"linear_{name}": array for name, array in tables.items()}
    return {PREFIX + name: array for name, array in small.items()}


def full_arrays(arrays: dict[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of which `compact_arrays` made these; raises `ModelFileError` where the tables are damaged."""
    arrays = {name.removeprefix(PREFIX): array for name, array in arrays.items()}
    tables = [arrays[f"linear_{name}"] for name in ("starts", "keys", "int8", "scales")]
    starts, keys, values, scales = tables
    try:
        check_pointers(starts, len(keys), f"{path}: {PREFIX}linear_starts")
    except DataError as error:
        raise ModelFileError(str(error)) from error
    large = {name: array for name, array in arrays.items() if not name.startswith("linear_")}
    for name in ("postings_indices", "labels_indices"):
        large[name] = arrays[name].astype(np.int32)
    large["postings_data"] = large.pop("postings_int16") * np.float32(1 / VALUES)
    full = np.flatnonzero(keys)
    label = np.repeat(np.arange(len(scales)), np.diff(starts))[full]
    order = np.lexsort((keys[full], label))
    full, label = full[order], label[order]
    large["linear_indptr"] = pointers(np.bincount(label, minlength=len(scales)))
    large["linear_indices"] = keys[full].astype(np.int32) - np.int32(1)
    large["linear_data"] = values[full] * scales[label]
    return {PREFIX + name: array for name, array in large.items()}
