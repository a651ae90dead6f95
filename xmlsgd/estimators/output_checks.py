"""Checks of what is asked of a scorer, and of what it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.csr import CSR
from ..data.validation import FLOAT32_MAX, as_vector
from ..errors import DataError, MemoryEstimateError, ModelFileError, shorten

DENSE_LIMIT = 1 << 30  # bytes of a dense (n, L) answer: above, a user wanted `predict_topk`
LARGE_VALUE = 1e6  # of a feature, which may be why a score is not finite


def check_finite(scores: np.ndarray, X: CSR, rows: np.ndarray | None = None, counted: np.ndarray | None = None) -> None:
    """Raise unless the scores (n, m) of these rows of X, or of all, are finite in float32; of `counted` ones, if given.

    `DataError` for a row of values too large to multiply, else `ModelFileError`: no run leaves such a model.
    """
    if scores.max(initial=0) <= FLOAT32_MAX and scores.min(initial=0) >= -FLOAT32_MAX:
        return
    bad = ~(np.abs(scores) <= FLOAT32_MAX) & (True if counted is None else counted)
    if not bad.any():
        return
    row = int(bad.any(axis=1).argmax())
    row = row if rows is None else int(rows[row])
    largest = np.abs(X.row(row)[1]).max(initial=0)
    if largest > LARGE_VALUE:
        raise DataError(f"X: row {row}: scores must be finite, got values up to {largest:g}; scale X as for training")
    raise ModelFileError("the model's folder is damaged: its scores are not finite; copy it again")


def checked_columns(labels: Any, n_labels: int, name: str = "labels") -> np.ndarray:
    """Return checked columns of labels."""
    columns = np.asarray(labels)
    if columns.ndim != 1 or columns.dtype.kind not in "iu" or len(columns) == 0:
        remedy = "the column of a name is list(classes_).index(name)"
        raise DataError(f"{name}: must be a list of column numbers, got {shorten(labels)}; {remedy}")
    bad = columns[(columns < 0) | (columns >= n_labels)]
    if len(bad):
        raise DataError(f"{name}: must be columns in [0, {n_labels}), got {bad[0]}")
    return columns


def checked_weight(weight: Any, n_labels: int) -> np.ndarray:
    """Return checked weights of labels, float64 (L,)."""
    checked = as_vector(weight, n_labels, "label_weight")
    bad = np.flatnonzero(~((checked > 0) & np.isfinite(checked)))
    if len(bad):
        raise DataError(f"label_weight: must be finite and above 0, got {checked[bad[0]]} for label {bad[0]}")
    return checked


def check_dense(n_rows: int, n_labels: int, size: int) -> None:
    """Raise `MemoryEstimateError` for a dense answer above the limit."""
    needed = n_rows * n_labels * size
    if needed > DENSE_LIMIT:
        raise MemoryEstimateError(
            f"a dense answer of {n_rows} rows and {n_labels} labels needs {needed / 1e9:.1f} GB, more than "
            f"{DENSE_LIMIT / 1e9:.1f} GB; use predict_topk, or fewer rows at a time"
        )
