"""A shortlist as plain arrays and a few numbers, and back, checked: its kernels follow these indices."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ..csr import CSR, check_entries, check_pointers
from ..devices.cpu_trees import INNER
from ..errors import DataError, ModelFileError, shorten
from .blend import Blend
from .boosted import EVIDENCE, Boosted
from .linear import Linear
from .model import Shortlist
from .neighbors import Neighbors

PREFIX = "shortlist_"


def to_arrays(shortlist: Shortlist) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what describes a shortlist in JSON, and its arrays by name."""
    arrays = {"scale": shortlist.scale, "weight": shortlist.neighbors.weight, "bias": shortlist.linear.bias}
    for name, matrix in _matrices(shortlist).items():
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
        "rows": shortlist.neighbors.Y.n_rows,
        "trees": 0 if boosted is None else len(boosted.value),
    }
    return described, {PREFIX + name: array for name, array in arrays.items()}


def from_arrays(described: Any, arrays: dict[str, np.ndarray], shape: tuple[int, int], path: Path) -> Shortlist:
    """Return the shortlist that `to_arrays` described, for (F, L) features and labels.

    Raises `ModelFileError` for what it cannot have written.
    """
    n_features, n_labels = shape
    size, blend, n_rows, n_trees = _numbers(described, path)

    def array(name: str, kind: type, length: int | None = None) -> np.ndarray:
        found = arrays.get(PREFIX + name)
        if found is None or found.ndim != 1 or found.dtype != kind or (length is not None and len(found) != length):
            got = "none" if found is None else f"{found.dtype} {found.shape}"
            wanted = f"{np.dtype(kind)} ({'n' if length is None else length},)"
            raise ModelFileError(f"{path}: {PREFIX}{name} must be {wanted}, got {got}")
        return found

    def finite(name: str, length: int) -> np.ndarray:
        found = array(name, np.float32, length)
        if not np.isfinite(found).all():
            raise ModelFileError(f"{path}: {PREFIX}{name} must be finite")
        return found

    def matrix(name: str, n: int, n_cols: int) -> CSR:
        indptr, indices = array(f"{name}_indptr", np.int64, n + 1), array(f"{name}_indices", np.int32)
        ones = np.broadcast_to(np.float32(1), len(indices))
        data = ones if name == "labels" else array(f"{name}_data", np.float32, len(indices))
        found = CSR(indptr, indices, data, n_cols)
        names = f"{path}: {PREFIX}{name}_indices", f"{path}: {PREFIX}{name}_data"
        try:
            check_pointers(indptr, len(indices), f"{path}: {PREFIX}{name}_indptr")
            check_entries(found, names)
        except DataError as error:
            raise ModelFileError(str(error)) from error
        return found

    postings, weight = matrix("postings", n_features, n_rows), finite("weight", n_rows)
    if (np.abs(postings.data) > 1 + 1e-5).any() or (weight < 0).any() or size > n_labels:
        raise ModelFileError(
            f"{path}: {PREFIX}postings_data must be within -1 and 1, {PREFIX}weight at least 0, and the shortlist's "
            f"size at most {n_labels}, got size {size}"
        )
    neighbors = Neighbors(postings, matrix("labels", n_rows, n_labels), weight)
    linear = Linear(matrix("linear", n_labels, n_features), finite("bias", n_labels))
    boosted = None
    if n_trees:
        feature, threshold = array("trees_feature", np.uint8, n_trees * INNER), array("trees_threshold", np.float32)
        value, frequency = finite("trees_value", n_trees * (INNER + 1)), finite("frequency", n_labels)
        if len(threshold) != len(feature) or np.isnan(threshold).any() or (feature >= EVIDENCE).any():
            raise ModelFileError(
                f"{path}: {PREFIX}trees_feature must be below {EVIDENCE}, with as many thresholds, which are numbers"
            )
        shape = n_trees, -1
        boosted = Boosted(feature.reshape(shape), threshold.reshape(shape), value.reshape(shape), frequency)
    return Shortlist(finite("scale", n_features), neighbors, linear, blend, size, boosted)


def _matrices(shortlist: Shortlist) -> dict[str, CSR]:
    neighbors = shortlist.neighbors
    return {"postings": neighbors.postings, "labels": neighbors.Y, "linear": shortlist.linear.weights}


def _numbers(described: Any, path: Path) -> tuple[int, Blend, int, int]:
    """Return the size of the shortlist, its blend, the number of training rows and that of trees."""
    try:
        size, blend, n_rows, n_trees = (described[name] for name in ("size", "blend", "rows", "trees"))
        counts = size, n_rows, n_trees + 1
        whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 1 << 31 for n in counts)
        if whole and all(isinstance(x, int | float) and math.isfinite(x) for x in Blend(*blend)):
            return size, Blend(*blend), n_rows, n_trees
    except (KeyError, TypeError):
        pass
    raise ModelFileError(f"{path}: shortlist must have size, blend, rows and trees, got {shorten(described)}")
