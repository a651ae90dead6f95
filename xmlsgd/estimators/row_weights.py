"""Read the weights of training rows: those of samples times those of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.frames import as_list
from ..errors import DataError, shorten
from .inputs import check_plain
from .names import values
from .parameters import is_amount
from .targets import Labels

# Limits of row weights other than 0, within which squared gradients in optimizer states, and votes, fit float32.
LEAST_WEIGHT, MOST_WEIGHT = 1e-20, 1e9


def read_row_weights(class_weight: Any, sample_weight: Any, labels: Labels) -> NDArray[np.float32] | None:
    """Return the weight of each row, its sample weight times that of its class, float32 (n,); None for ones."""
    weight, by_class = read_sample_weight(sample_weight, labels.Y.n_rows), _weights_by_class(class_weight, labels)
    if by_class is None:
        return weight
    product: np.ndarray = by_class if weight is None else weight * by_class
    if not product.any():
        raise DataError("class_weight: must leave rows of a weight above 0, got none; use weights around 1")
    _check_limits(product, "class_weight")
    return product


def read_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Return the weights of the rows as float32 (n,), checked; None stays None."""
    if sample_weight is None:
        return None
    sample_weight = as_list(sample_weight)
    check_plain(sample_weight, "sample_weight")
    try:
        with np.errstate(over="ignore"):
            weight = np.asarray(sample_weight, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
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
    _check_limits(weight, "sample_weight")
    return weight


def _weights_by_class(class_weight: Any, labels: Labels) -> np.ndarray | None:
    """Return the weight of each row by its class, float32 (n,); raise `DataError` unless there is one class per row."""
    if class_weight is None:
        return None
    if labels.form != "multiclass":
        form = f"class_weight: must be None unless Y has one class per row, got labels that are {labels.form}"
        raise DataError(f"{form}; weigh rows with sample_weight")
    if isinstance(class_weight, dict):
        by_class = _given_weights(class_weight, values(labels.classes))
    elif isinstance(class_weight, str) and class_weight == "balanced":
        counts = labels.Y.column_counts()
        by_class = len(labels.Y.indices) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    else:
        raise DataError(f"class_weight: must be 'balanced', a dict or None, got {shorten(class_weight)}")
    return by_class.astype(np.float32)[labels.Y.indices]


def _given_weights(class_weight: dict[Any, Any], classes: list[Any]) -> np.ndarray:
    """Return the weight of each class, 1 if it is not given. Rows of a class of weight 0 are not learned."""
    unknown = [key for key in class_weight if key not in set(classes)]
    if unknown:
        raise DataError(f"class_weight: must name classes of Y, got {shorten(unknown[0])}")
    for key, weight in class_weight.items():
        if not is_amount(weight):
            got = f"{shorten(weight)} for {shorten(key)}"
            raise DataError(f"class_weight: a weight must be a finite number of at least 0, got {got}")
    return np.array([class_weight.get(key, 1.0) for key in classes])


def _check_limits(weight: np.ndarray, name: str) -> None:
    """Raise `DataError` unless weights of rows are 0 or within the limits."""
    bad = np.flatnonzero((weight != 0) & ~((weight >= LEAST_WEIGHT) & (weight <= MOST_WEIGHT)))
    if len(bad):
        limits, got = f"{LEAST_WEIGHT:g} to {MOST_WEIGHT:g}", f"{weight[bad[0]]:g} in row {bad[0]}"
        raise DataError(f"{name}: weights of rows must be 0 or {limits}, got {got}; scale them to a mean of 1")
