"""Compact candidate models, for prediction only, in a third of the bytes: narrow indices, int16 values, int8 tables.

Kernels read the memory-mapped arrays directly, and check pointers and indices when they use them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.csr import pointers
from ..devices.compact import compacted
from ..devices.cpu.kernels.linear_margins import hash_weights
from .knn import INT16_ONE
from .linear import LinearPredictor, Tables, table_starts

PREFIX = "candidates_"  # prefix of the names of arrays in the folder of a model
SLOTS_PER_WEIGHT = 1.5  # size of a hash table
MAX_UINT16 = np.iinfo(np.uint16).max  # indices are uint16 if there are at most this many rows, features and labels


@dataclass(frozen=True, eq=False)
class CompactLinearClassifiers(LinearPredictor):
    """Linear classifiers as int8 hash tables, one scale per label. tables : see `Tables`. bias : float32 (L,)."""

    tables: Tables
    bias: np.ndarray


def index_type(n_features: int, n_rows: int, n_labels: int) -> type:
    """Return the integer type of the indices of a compact model."""
    return np.uint16 if max(n_features, n_rows, n_labels) <= MAX_UINT16 else np.int32


def compact_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a candidate model (`to_arrays`) in compact form."""
    arrays = {name.removeprefix(PREFIX): array for name, array in arrays.items()}
    small = {name: array for name, array in arrays.items() if not name.startswith("linear_")}
    features, indptr = arrays["linear_indices"], arrays["linear_indptr"]
    kind = index_type(*(len(arrays[f"{name}_indptr"]) - 1 for name in ("postings", "labels", "linear")))
    for name in ("postings_indices", "labels_indices", "cooccurrence_indices"):
        small[name] = arrays[name].astype(kind)
    for name in ("postings", "cooccurrence"):
        small[f"{name}_int16"] = np.rint(small.pop(f"{name}_data") * np.float32(INT16_ONE)).astype(np.int16)
    weights, scales = compacted(arrays["linear_data"], indptr)
    kept = weights != 0
    indptr = pointers(kept)[indptr]
    starts = table_starts(indptr, SLOTS_PER_WEIGHT)
    keys, values = np.zeros(starts[-1], kind), np.zeros(starts[-1], np.int8)
    hash_weights.alone(indptr, features[kept], weights[kept], starts, keys, values)
    small |= {"linear_starts": starts, "linear_keys": keys, "linear_int8": values, "linear_scales": scales}
    return {PREFIX + name: array for name, array in small.items()}
