"""Features as users hold them, as a CSR: dense and sparse arrays, data frames, our own CSR, texts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from ..csr import CSR
from ..errors import DataError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .classifier import XMLClassifier


def read_features(model: XMLClassifier, X: Any, reset: bool = False, grow: bool = False) -> CSR:
    """Return X as a CSR, checked against the features that `model` knows.

    `reset` learns their number and names anew; `grow` lets columns be added on the right. A CSR of ours is taken as it
    is, without a copy; a list of strings goes through the model's `vectorizer_`.
    """
    if is_text(X):
        if not hasattr(model, "vectorizer_"):
            raise DataError("X: texts need a vectorizer; set model.vectorizer_ to a fitted TextVectorizer")
        X = model.vectorizer_.transform(X)
    if isinstance(X, CSR):
        check_csr(X, "X")
        read, names = X, None
    else:
        before = getattr(model, "n_features_in_", 0)
        wider = grow and np.ndim(X) == 2 and X.shape[1] > before
        known = getattr(model, "feature_names_in_", None)
        with refusals():
            X = validate_data(
                model, X, reset=reset or wider, accept_sparse="csr", dtype=[np.float32, np.float64],
                ensure_all_finite=False,
            )  # fmt: skip
        names = getattr(model, "feature_names_in_", None)
        if wider:
            model.n_features_in_ = before
            _check_old_names(known, names)
        read = CSR.from_scipy(X if sp.issparse(X) else _sparse_rows(X), "X")
    if reset:
        model.n_features_in_ = read.n_cols
        if names is None and hasattr(model, "feature_names_in_"):
            del model.feature_names_in_
    elif read.n_cols != model.n_features_in_ and not (grow and read.n_cols > model.n_features_in_):
        raise DataError(
            f"X has {read.n_cols} features, but {type(model).__name__} is expecting {model.n_features_in_} features as "
            "input"
        )
    return read


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the `ValueError` with which scikit-learn refuses data into a `DataError`."""
    try:
        yield
    except ValueError as error:
        raise DataError(str(error)) from error


def is_text(X: Any) -> bool:
    """Return whether X is a sequence of strings."""
    return (isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], str)) or (
        isinstance(X, np.ndarray) and X.ndim == 1 and len(X) > 0 and isinstance(X[0], str)
    )


def check_csr(matrix: CSR, name: str) -> None:
    """Raise `DataError` unless the arrays of a CSR describe rows that a kernel may follow; one pass, no copies."""
    indptr, indices = matrix.indptr, matrix.indices
    types = [array.dtype.name for array in (indptr, indices, matrix.data)]
    if types != ["int64", "int32", "float32"]:
        raise DataError(f"{name}: must be of int64, int32 and float32 arrays, got {', '.join(types)}")
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(matrix.data) != len(indices) or np.any(np.diff(indptr) < 0):
        raise DataError(f"{name}: indptr must rise from 0 to nnz = {len(indices)} over {matrix.n_rows} rows")
    if len(indices) and (indices.min() < 0 or indices.max() >= matrix.n_cols):
        raise DataError(f"{name}: indices must be in [0, {matrix.n_cols}), got {indices.min()} to {indices.max()}")


def read_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Return the weights of the rows, float32 (n,); None stays None."""
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight: must be numbers, got {shorten(sample_weight)}") from error
    if weight.ndim == 0:
        weight = np.full(n_rows, weight)
    if weight.ndim != 1:
        raise DataError(f"sample_weight: Sample weights must be 1D array or scalar, got shape {weight.shape}")
    if len(weight) != n_rows:
        raise DataError(f"sample_weight: must have one value for each of {n_rows} rows, got {len(weight)}")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(bad):
        raise DataError(f"sample_weight: row {bad[0]}: must be finite and not negative, got {weight[bad[0]]}")
    if not weight.any():
        raise DataError("sample_weight: must have at least one value above zero, got zeros only")
    return weight


def _sparse_rows(X: np.ndarray) -> sp.csr_array:
    """Return a dense matrix as sparse rows; `DataError` names the first row with a value that is not finite."""
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        value = X[bad[0]][~np.isfinite(X[bad[0]])][0]
        raise DataError(f"X: row {bad[0]}: Input X contains NaN or infinity, got {value}; every value must be finite")
    return sp.csr_array(X)


def _check_old_names(known: np.ndarray | None, names: np.ndarray | None) -> None:
    """Raise unless added features stand to the right of those known by name."""
    if known is not None and (names is None or list(names[: len(known)]) != list(known)):
        raise DataError(f"X: the first {len(known)} features must bear the names seen before; append new ones")
