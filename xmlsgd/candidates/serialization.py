"""A shortlist as plain arrays and a few numbers, and back, checked: its kernels follow these indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..data.csr import CSR, check_entries, check_pointers
from ..data.files.model_arrays import ModelArrays
from ..data.validation import FLOAT32_MAX
from ..devices.cpu.kernels.trees import INNER
from ..errors import DataError, ModelFileError, shorten
from .boosted_stacking import EVIDENCE, Boosted
from .compact import NARROW, PREFIX, CompactLinear
from .knn import Neighbors
from .linear import Linear
from .model import Shortlist
from .stacking import Blend


def to_arrays(shortlist: Shortlist) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what describes a shortlist in JSON, and its arrays by name."""
    assert isinstance(shortlist.linear, Linear)  # a compact model is saved again by the arrays that it has
    arrays = {"scale": shortlist.scale, "weight": shortlist.neighbors.weight, "bias": shortlist.linear.bias}
    matrices = {"postings": shortlist.neighbors.postings, "labels": shortlist.neighbors.Y}
    matrices["linear"] = shortlist.linear.weights
    for name, matrix in matrices.items():
        arrays |= {f"{name}_indptr": matrix.indptr, f"{name}_indices": matrix.indices}
        if name != "labels":
            arrays[f"{name}_data"] = matrix.data
    boosted = shortlist.boosted
    if boosted is not None:
        trees = {"feature": boosted.feature, "threshold": boosted.threshold, "value": boosted.value}
        arrays |= {f"trees_{name}": array.ravel() for name, array in trees.items()} | {"frequency": boosted.frequency}
    described = {
        "size": shortlist.size,
        "blend": list(shortlist.blend),
        "near": shortlist.near,
        "rows": shortlist.neighbors.Y.n_rows,
        "trees": 0 if boosted is None else len(boosted.value),
    }
    return described, {PREFIX + name: array for name, array in arrays.items()}


def from_arrays(described: Any, saved: ModelArrays, shape: tuple[int, int]) -> Shortlist:
    """Return the shortlist that `to_arrays` described, for (F, L) features and labels.

    Raises `ModelFileError` for what it cannot have written.
    """
    n_features, n_labels = shape
    size, blend, near, n_rows, n_trees = _numbers(described, n_labels, saved.path)
    found, path = _Found(saved.arrays, saved.path, saved.check, PREFIX), saved.path

    def matrix(name: str, n: int, n_cols: int) -> CSR:
        indptr, indices = found.array(f"{name}_indptr", np.int64, n + 1), found.array(f"{name}_indices", np.int32, None)
        ones = np.broadcast_to(np.float32(1), len(indices))
        data = ones if name == "labels" else found.array(f"{name}_data", np.float32, len(indices))
        rows = CSR(indptr, indices, data, n_cols)
        names = f"{path}: {PREFIX}{name}_indices", f"{path}: {PREFIX}{name}_data"
        try:
            check_pointers(indptr, len(indices), f"{path}: {PREFIX}{name}_indptr")
            check_entries(rows, names)
        except DataError as error:
            raise ModelFileError(str(error)) from error
        return rows

    postings, weight = matrix("postings", n_features, n_rows), found.weight(n_rows)
    if (np.abs(postings.data) > 1 + 1e-5).any():
        raise ModelFileError(f"{path}: {PREFIX}postings_data must be within -1 and 1")
    neighbors = Neighbors(postings, matrix("labels", n_rows, n_labels), weight)
    linear = Linear(matrix("linear", n_labels, n_features), found.finite("bias", n_labels))
    boosted = found.boosted(n_trees, n_labels)
    return Shortlist(found.finite("scale", n_features), neighbors, linear, blend, size, near, boosted)


def from_compact(described: Any, saved: ModelArrays, shape: tuple[int, int]) -> Shortlist:
    """Return the shortlist whose arrays `compact_arrays` made small; kernels will check what is in them.

    `ModelArrays.check` also says whether weights of rows are looked at. Raises `ModelFileError` for arrays of another
    type or size.
    """
    n_features, n_labels = shape
    size, blend, near, n_rows, n_trees = _numbers(described, n_labels, saved.path)
    found = _Found(saved.arrays, saved.path, saved.check, PREFIX)
    kind = np.uint16 if max(n_features, n_rows, n_labels) <= NARROW else np.int32

    def matrix(name: str, n: int, n_cols: int) -> CSR:
        indptr, indices = found.array(f"{name}_indptr", np.int64, n + 1), found.array(f"{name}_indices", kind, None)
        ones = np.broadcast_to(np.float32(1), len(indices))
        data = ones if name == "labels" else found.array(f"{name}_int16", np.int16, len(indices))
        return CSR(indptr, indices, data, n_cols)

    neighbors = Neighbors(
        matrix("postings", n_features, n_rows), matrix("labels", n_rows, n_labels), found.weight(n_rows)
    )
    keys = found.array("linear_keys", kind, None)
    tables = (
        found.array("linear_starts", np.int64, n_labels + 1),
        keys,
        found.array("linear_int8", np.int8, len(keys)),
        found.finite("linear_scales", n_labels),
    )
    linear, scale = CompactLinear(tables, found.finite("bias", n_labels)), found.finite("scale", n_features)
    return Shortlist(scale, neighbors, linear, blend, size, near, found.boosted(n_trees, n_labels))


class _Found(ModelArrays):
    """The arrays of a shortlist."""

    def weight(self, n_rows: int) -> np.ndarray:
        """Return how much the vote of each training row counts."""
        found = self.finite("weight", n_rows)
        if self.check and (found < 0).any():
            raise ModelFileError(f"{self.path}: {PREFIX}weight must be at least 0, got {found.min()}")
        return found

    def boosted(self, n_trees: int, n_labels: int) -> Boosted | None:
        """Return the trees, which are small and checked always."""
        if not n_trees:
            return None
        feature, threshold = (
            self.array("trees_feature", np.uint8, n_trees * INNER),
            self.array("trees_threshold", np.float32, None),
        )
        value, frequency = self.finite("trees_value", n_trees * (INNER + 1)), self.finite("frequency", n_labels)
        if len(threshold) != len(feature) or np.isnan(threshold).any() or (feature >= EVIDENCE).any():
            raise ModelFileError(
                f"{self.path}: {PREFIX}trees_feature must be below {EVIDENCE}, with as many thresholds, "
                "which are numbers"
            )
        shape = n_trees, -1
        return Boosted(feature.reshape(shape), threshold.reshape(shape), value.reshape(shape), frequency)


def _numbers(described: Any, n_labels: int, path: Path) -> tuple[int, Blend, float, int, int]:
    """Return the size of the shortlist, its blend, what is near, the number of training rows and that of trees."""
    try:
        size, blend, near, n_rows, n_trees = (described[name] for name in ("size", "blend", "near", "rows", "trees"))
        counts = size, n_rows, n_trees + 1
        whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 1 << 31 for n in counts)
        finite = all(isinstance(x, int | float) and abs(x) <= FLOAT32_MAX for x in (*Blend(*blend), near))
        if whole and size <= n_labels and finite and blend[0] >= 0:
            return size, Blend(*blend), near, n_rows, n_trees
    except (KeyError, TypeError):
        pass
    raise ModelFileError(
        f"{path}: shortlist must have size, blend, near, rows and trees, the size at most {n_labels}, "
        f"got {shorten(described)}"
    )
