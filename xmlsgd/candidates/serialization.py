"""Write candidate models as named arrays and JSON, and read them, checked, because kernels trust the indices."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..data.csr import CSR, check_entries, check_pointers, index_type, pointer_type
from ..data.files.folders import FolderArrays
from ..data.validation import FLOAT32_MAX
from ..devices.cpu.kernels.logits import ONE_SCALE
from ..devices.cpu.kernels.trees import INNER
from ..errors import DataError, ModelFileError, shorten
from .boosted_trees import N_META_FEATURES, BoostedTrees
from .compact import PREFIX, CompactLinearClassifiers
from .cooccurrence import Cooccurrence
from .exclusion import Exclusion
from .knn import KNNIndex
from .linear import LinearClassifiers, Tables
from .model import CandidateModel
from .non_candidates import NonCandidateScores
from .stacking import LogisticStacking, MarginCalibration, Stacking

NUMBERS = "size", "cost", "stacking", "calibration", "selection", "non_candidates", "rows", "trees", "exclusion"


def to_arrays(model: CandidateModel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description of a candidate model for JSON, and its arrays by name."""
    assert isinstance(model.linear, LinearClassifiers)  # a compact model is saved from the arrays that it was read from
    knn, cooccurrence = model.knn, model.cooccurrence
    trees, exclusion = model.stacking.trees, model.stacking.exclusion
    arrays = {
        "scale": model.feature_weights, "weight": knn.weight, "bias": model.linear.bias, "label_rows": model.label_rows,
        "postings_data": knn.postings.data, "linear_data": model.linear.weights.data,
        "cooccurrence_data": cooccurrence.shares.data, "cooccurrence_totals": cooccurrence.totals,
    }  # fmt: skip
    matrices = {
        "postings": knn.postings, "labels": knn.Y, "cooccurrence": cooccurrence.shares, "linear": model.linear.weights,
    }  # fmt: skip
    kinds = _index_types(knn.postings.n_rows, *knn.Y.shape)
    for name, matrix in matrices.items():
        arrays[f"{name}_indptr"] = matrix.indptr.astype(pointer_type(matrix.nnz), copy=False)
        arrays[f"{name}_indices"] = matrix.indices.astype(kinds[name], copy=False)
    if trees is not None:
        nodes = {"feature": trees.feature, "threshold": trees.threshold, "value": trees.value}
        arrays |= {f"trees_{name}": array.ravel() for name, array in nodes.items()} | {"frequency": trees.frequency}
    if exclusion is not None:
        arrays |= {"exclusion_labels": exclusion.labels, "exclusion_table": exclusion.table}
    described = {
        "size": model.n_voted,
        "cost": model.linear.cost,
        "stacking": list(model.stacking.regression),
        "calibration": list(model.stacking.calibration),
        "selection": list(model.stacking.selection),
        "non_candidates": list(model.non_candidates),
        "rows": knn.Y.n_rows,
        "trees": 0 if trees is None else len(trees.value),
        "exclusion": 0.0 if exclusion is None else exclusion.weight,
    }
    return described, {PREFIX + name: array for name, array in arrays.items()}


def from_arrays(described: Any, saved: FolderArrays, shape: tuple[int, int], compact: bool = False) -> CandidateModel:
    """Return the model that `to_arrays` described, for `shape` (F, L) features and labels.

    compact : whether the arrays are those of `compact_arrays`. Then kernels will check pointers and indices, and
    `saved.check_values` says whether to check values here. Raises `ModelFileError` for invalid contents.
    """
    n_features, n_labels = shape
    size, cost, (regression, calibration, selection, others), n_rows, n_trees, excluding = _numbers(
        described, n_labels, saved.path
    )
    found = saved.part(PREFIX)
    kinds = _index_types(n_features, n_rows, n_labels)
    matrix_of = partial(_matrix, found, kinds, compact)
    form = "int8" if compact else "data"
    postings = matrix_of("postings", (n_features, n_rows), f"postings_{form}")
    labels, weight = matrix_of("labels", (n_rows, n_labels), None), found.finite("weight", n_rows)
    shares = matrix_of("cooccurrence", (n_features, n_labels), f"cooccurrence_{form}")
    totals, bias = found.finite("cooccurrence_totals", n_features), found.finite("bias", n_labels)
    linear: LinearClassifiers | CompactLinearClassifiers
    of_postings = of_shares = ONE_SCALE
    if compact:
        of_postings, of_shares = (found.finite(f"{name}_scales", n_features) for name in ("postings", "cooccurrence"))
        keys = found.array("linear_keys", kinds["linear"], None)
        n_starts, n_values = (n_labels + 1, len(keys)) if len(keys) else (0, n_labels * n_features)
        starts = found.array("linear_buckets", pointer_type(len(keys)), n_starts)
        values, scales = found.array("linear_int8", np.int8, n_values), found.finite("linear_scales", n_labels)
        linear = CompactLinearClassifiers(Tables(starts, keys, values, scales), bias)
    else:
        weights = matrix_of("linear", (n_labels, n_features), "linear_data")
        linear = LinearClassifiers(weights, bias, cost)
        matrices = {"postings": postings, "labels": labels, "cooccurrence": shares, "linear": weights}
        for name, matrix in matrices.items():
            _check_matrix(matrix, f"{saved.path}: {found.prefix}{name}")
        for name in ("postings", "cooccurrence"):
            if (np.abs(matrices[name].data) > 1 + 1e-5).any():
                raise ModelFileError(f"{saved.path}: {found.prefix}{name}_data must be within -1 and 1")
    for name, least in {"weight": weight, "cooccurrence_totals": totals}.items():
        if found.check_values and (least < 0).any():
            raise ModelFileError(f"{saved.path}: {found.prefix}{name} must be at least 0, got {least.min()}")
    knn, cooccurrence = KNNIndex(postings, labels, weight, of_postings), Cooccurrence(shares, totals, of_shares)
    trees, exclusion = _trees(found, n_trees, n_labels), _exclusion(found, excluding, n_labels)
    stacking = Stacking(regression, calibration, selection, trees, exclusion)
    feature_weights, label_rows = found.finite("scale", n_features), found.array("label_rows", np.int64, None)
    if (np.diff(label_rows, prepend=-1, append=n_rows) < 1).any():
        raise ModelFileError(f"{saved.path}: {found.prefix}label_rows must ascend, below {n_rows}")
    return CandidateModel(feature_weights, knn, cooccurrence, linear, stacking, others, size, label_rows)


def _index_types(n_features: int, n_rows: int, n_labels: int) -> dict[str, type]:
    """Return the integer types of the indices of all matrices in files."""
    others = index_type(n_features, n_labels)
    return {"postings": index_type(n_rows), "labels": others, "cooccurrence": others, "linear": others}


def _matrix(
    saved: FolderArrays, kinds: dict[str, type], compact: bool, name: str, shape: tuple[int, int], data: str | None
) -> CSR:
    """Return a CSR matrix; `data` is the name of the array of values, None for ones.

    kinds : types of the indices in files. compact : whether they stay as they are, as kernels of compact models read
    them.
    """
    indices = saved.array(f"{name}_indices", kinds[name], None)
    indptr = saved.array(f"{name}_indptr", pointer_type(len(indices)), shape[0] + 1)
    if not compact:
        indptr, indices = indptr.astype(np.int64, copy=False), indices.astype(np.int32, copy=False)
    if data is None:
        return CSR(indptr, indices, np.broadcast_to(np.float32(1), len(indices)), shape[1])
    values = saved.array(data, np.int8 if data.endswith("int8") else np.float32, len(indices))
    return CSR(indptr, indices, values, shape[1])


def _trees(saved: FolderArrays, n_trees: int, n_labels: int) -> BoostedTrees | None:
    """Return the trees, which are small and always checked; None if there are none."""
    if not n_trees:
        return None
    feature = saved.array("trees_feature", np.uint8, n_trees * INNER)
    threshold = saved.array("trees_threshold", np.float32, None)
    value, frequency = saved.finite("trees_value", n_trees * (INNER + 1)), saved.finite("frequency", n_labels)
    if len(threshold) != len(feature) or np.isnan(threshold).any() or (feature >= N_META_FEATURES).any():
        wanted = f"must be below {N_META_FEATURES}, with as many thresholds, none of them NaN"
        raise ModelFileError(f"{saved.path}: {saved.prefix}trees_feature {wanted}")
    shape = n_trees, -1
    return BoostedTrees(feature.reshape(shape), threshold.reshape(shape), value.reshape(shape), frequency)


def _exclusion(saved: FolderArrays, weight: float, n_labels: int) -> Exclusion | None:
    """Return the exclusions, whose labels are few and always checked; None if there are none."""
    if not weight:
        return None
    labels = saved.array("exclusion_labels", np.int32, None)
    if (np.diff(labels, prepend=-1, append=n_labels) < 1).any():
        raise ModelFileError(f"{saved.path}: {saved.prefix}exclusion_labels must ascend, below {n_labels}")
    return Exclusion(labels, saved.array("exclusion_table", np.uint8, len(labels), len(labels)), weight)


def _check_matrix(matrix: CSR, name: str) -> None:
    """Raise `ModelFileError` unless pointers, indices and values of a matrix are valid."""
    try:
        check_pointers(matrix.indptr, len(matrix.indices), f"{name}_indptr")
        check_entries(matrix, (f"{name}_indices", f"{name}_data"))
    except DataError as error:
        raise ModelFileError(str(error)) from error


Weights = tuple[LogisticStacking, MarginCalibration, LogisticStacking, NonCandidateScores]


def _numbers(described: Any, n_labels: int, path: Path) -> tuple[int, float, Weights, int, int, float]:
    """Return size, cost, the weights of all scores, numbers of rows and trees, and weight of exclusion, checked."""
    try:
        size, cost, *given, n_rows, n_trees, exclusion = (described[name] for name in NUMBERS)
        stacking, calibration, selection, others = given
        counts = size, n_rows, n_trees + 1
        whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 1 << 31 for n in counts)
        regressions = LogisticStacking(*stacking), LogisticStacking(*selection)
        of_others = NonCandidateScores(*others)
        weights = regressions[0], MarginCalibration(*calibration), regressions[1], of_others
        whole &= list(map(len, given)) == list(map(len, weights)) and size <= n_labels
        floats = cost, exclusion, *(number for each in weights for number in each)
        finite = all(isinstance(x, int | float) and abs(x) <= FLOAT32_MAX for x in floats)
        positive = min(cost, of_others.network) > 0 and min(exclusion, *(each.network for each in regressions)) >= 0
        if whole and finite and positive:
            return size, cost, weights, n_rows, n_trees, exclusion
    except KeyError as error:
        wanted = f"candidates must have {error}, got a model without, as of another version; train it again"
        raise ModelFileError(f"{path}: {wanted}") from error
    except TypeError:
        pass
    raise ModelFileError(
        f"{path}: candidates must have {', '.join(NUMBERS)}, the size at most {n_labels}, got {shorten(described)}"
    )
