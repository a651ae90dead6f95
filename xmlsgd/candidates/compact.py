"""Compact candidate models, for prediction only, in about half of the bytes: narrow indices, int8 values with scales.

Kernels read the memory-mapped arrays directly, and check pointers and indices when they use them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.csr import CSR, pointer_type, pointers
from ..devices.compact import compacted
from .linear import LinearPredictor, Tables, to_tables

PREFIX = "candidates_"  # prefix of the names of arrays in the folder of a model
SLOTS_PER_WEIGHT = 1.25  # size of a hash table (docs/decisions/prediction.md)


@dataclass(frozen=True, eq=False)
class CompactLinearClassifiers(LinearPredictor):
    """Linear classifiers as int8 tables, one scale per label. tables : see `Tables`. bias : float32 (L,)."""

    tables: Tables
    bias: np.ndarray


def compact_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a candidate model (`to_arrays`) in compact form."""
    arrays = {name.removeprefix(PREFIX): array for name, array in arrays.items()}
    small = {name: array for name, array in arrays.items() if not name.startswith("linear_")}
    features, indptr = arrays["linear_indices"], arrays["linear_indptr"]
    for name in ("postings", "cooccurrence"):
        values, of_features = small.pop(f"{name}_data"), arrays[f"{name}_indptr"]
        small[f"{name}_int8"], small[f"{name}_scales"] = compacted(values, of_features)
    weights, scales = compacted(arrays["linear_data"], indptr)
    kept = weights != 0
    indptr = pointers(kept)[indptr]
    matrix = CSR(indptr, features[kept].astype(np.int32, copy=False), weights[kept], len(arrays["scale"]))
    tables = to_tables(matrix, SLOTS_PER_WEIGHT, features.dtype.type)
    starts = tables.starts.astype(pointer_type(len(tables.keys)))
    small |= {"linear_buckets": starts, "linear_keys": tables.keys, "linear_int8": tables.values}
    small["linear_scales"] = scales
    return {PREFIX + name: array for name, array in small.items()}
