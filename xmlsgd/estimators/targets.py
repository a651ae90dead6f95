"""Labels as users hold them, as a CSR: indicator matrices, lists of labels, one class a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from ..csr import CSR
from ..errors import DataError, shorten
from .inputs import check_csr, refusals

Form: TypeAlias = Literal["sparse", "dense", "lists", "multiclass"]


@dataclass(frozen=True)
class Labels:
    """The labels of n rows: Y (n, L) without zeros, the name of each column, and the form in which they came."""

    Y: CSR
    classes: np.ndarray
    form: Form


def form_of(Y: Any) -> Form:
    """Return the form of labels: a matrix, a sequence of label collections, or one class a row.

    As in scikit-learn, lists of one length that hold 0 and 1 only are the rows of an indicator.
    """
    if isinstance(Y, CSR) or sp.issparse(Y):
        return "sparse"
    if _is_lists(Y) and not _is_indicator(Y):
        return "lists"
    shape = np.asarray(Y).shape
    return "dense" if len(shape) == 2 and shape[1] > 1 else "multiclass"


def read_labels(Y: Any, classes: np.ndarray | None = None, name: str = "Y") -> Labels:
    """Return labels of any form; those not among `classes` get columns behind them.

    `classes` are the names of the columns so far. A matrix with more columns than names is an error unless the names
    are the column numbers.
    """
    form = form_of(Y)
    if form == "lists":
        return _read_lists(Y, classes, name)
    if form == "multiclass":
        return _read_multiclass(Y, classes)
    csr = _read_matrix(Y, form, name)
    n_known = 0 if classes is None else len(classes)
    if classes is None or (csr.n_cols > n_known and np.array_equal(classes, np.arange(n_known))):
        classes = np.arange(csr.n_cols)
    elif csr.n_cols > n_known:
        raise DataError(f"{name}: must have a column for each of the {n_known} named labels, got {csr.n_cols}")
    elif csr.n_cols < n_known:
        raise DataError(f"{name}: must have at least the {n_known} columns seen before, got {csr.n_cols}")
    return Labels(csr, classes, form)


def label_weights(class_weight: Any, labels: Labels) -> np.ndarray | None:
    """Return the weight of each row by its class, float32 (n,); only one class a row has such a weight."""
    if class_weight is None:
        return None
    if labels.form != "multiclass":
        raise DataError("class_weight: works for one class a row (1-D Y); weigh rows with sample_weight")
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise DataError(f"class_weight: must be 'balanced', a dict or None, got {shorten(class_weight)}")
        counts = np.bincount(labels.Y.indices, minlength=len(labels.classes))
        by_class = len(labels.Y.indices) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    elif isinstance(class_weight, dict):
        unknown = [key for key in class_weight if key not in set(labels.classes.tolist())]
        if unknown:
            raise DataError(f"class_weight: must name classes of Y, got {shorten(unknown[0])}")
        by_class = np.array([class_weight.get(key, 1.0) for key in labels.classes.tolist()])
    else:
        raise DataError(f"class_weight: must be 'balanced', a dict or None, got {shorten(class_weight)}")
    return by_class.astype(np.float32)[labels.Y.indices]


def as_names(names: Iterable[Any]) -> np.ndarray:
    """Return label names as an array; strings as objects, so that one long name does not widen all."""
    listed = list(names)
    if all(isinstance(name, str) for name in listed):
        array = np.empty(len(listed), dtype=object)
        array[:] = listed
        return array
    return np.asarray(listed)


def _is_lists(Y: Any) -> bool:
    """Return whether Y is a sequence of collections that does not already form a matrix of NumPy."""
    if isinstance(Y, list | tuple):
        return len(Y) > 0 and isinstance(Y[0], list | tuple | set | frozenset | np.ndarray)
    values = getattr(Y, "values", Y)  # a column of a data frame
    return (
        isinstance(values, np.ndarray)
        and values.dtype == object
        and values.ndim == 1
        and len(values) > 0
        and isinstance(values[0], list | tuple | set | frozenset | np.ndarray)
    )


def _is_indicator(Y: Sequence[Any]) -> bool:
    """Return whether all rows have the same length, above 1, and hold 0 and 1 only."""
    width = len(Y[0])
    if width < 2 or any(len(row) != width or isinstance(row, set | frozenset) for row in Y):
        return False
    return all(value in (0, 1) for row in Y for value in row if not isinstance(value, str)) and not any(
        isinstance(value, str) for row in Y for value in row
    )


def _read_matrix(Y: Any, form: Form, name: str) -> CSR:
    """Return an indicator matrix as a CSR without zeros."""
    if isinstance(Y, CSR):
        check_csr(Y, name)
        csr = Y
    elif form == "sparse":
        csr = CSR.from_scipy(Y, name)
    else:
        dense = np.asarray(Y)
        if dense.dtype.kind not in "biuf":
            raise DataError(f"{name}: a dense indicator must hold numbers, got {dense.dtype}")
        with refusals():
            assert_all_finite(dense, input_name="y")
        bad = np.argwhere((dense != 0) & (dense != 1))
        if len(bad):
            row, column = bad[0]
            raise DataError(f"{name}: row {row}: a dense indicator must hold 0 and 1, got {dense[row, column]}")
        csr = CSR.from_scipy(sp.csr_array(dense), name)
    if csr.n_cols == 0:
        raise DataError(f"{name}: must have at least one label column, got shape {csr.shape}")
    if csr.data.all():
        return csr
    kept = csr.data != 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[csr.indptr]
    return CSR(indptr, csr.indices[kept], csr.data[kept], csr.n_cols)


def _read_lists(Y: Sequence[Any], classes: np.ndarray | None, name: str) -> Labels:
    """Return label lists as columns in the order of `classes`, then sorted; a label twice in a row counts once."""
    rows = [set(_items(row, i, name)) for i, row in enumerate(Y)]
    found = set().union(*rows)
    known = [] if classes is None else classes.tolist()
    try:
        columns = [*known, *sorted(found.difference(known))]
    except TypeError as error:
        raise DataError(f"{name}: labels must be all numbers or all strings, got {error}") from error
    index = {label: column for column, label in enumerate(columns)}
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    ids = (column for row in rows for column in sorted(index[label] for label in row))
    indices = np.fromiter(ids, dtype=np.int32, count=int(indptr[-1]))
    if not columns:
        raise DataError(f"{name}: must have at least one label, got none in {len(rows)} rows")
    return Labels(
        CSR(indptr, indices, np.ones(len(indices), np.float32), len(columns)),
        classes if classes is not None and len(columns) == len(classes) else as_names(columns),
        "lists",
    )


def _items(row: Any, i: int, name: str) -> Iterable[Any]:
    """Return the labels of one row as Python values."""
    if isinstance(row, np.ndarray):
        row = row.tolist()
    if isinstance(row, str) or not isinstance(row, list | tuple | set | frozenset):
        raise DataError(f"{name}: row {i}: must be a list of labels, got {shorten(row)}")
    labels = [label.item() if isinstance(label, np.generic) else label for label in row]
    for label in labels:
        if not isinstance(label, int | str):
            raise DataError(f"{name}: row {i}: a label must be an int or a string, got {shorten(label)}")
    return labels


def _read_multiclass(Y: Any, classes: np.ndarray | None) -> Labels:
    """Return one class a row as columns in the order of `classes`, then sorted."""
    with refusals():
        y = column_or_1d(Y, warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
    found, ids = np.unique(y, return_inverse=True)
    if classes is None:
        classes = found
    else:
        new = found[~np.isin(found, classes)]
        classes = np.concatenate([classes, new]) if len(new) else classes
        order = np.argsort(classes, kind="stable")
        ids = order[np.searchsorted(classes, found, sorter=order)][ids]
    indices = np.asarray(ids, dtype=np.int32).ravel()
    n = len(indices)
    csr = CSR(np.arange(n + 1, dtype=np.int64), indices, np.ones(n, np.float32), len(classes))
    return Labels(csr, classes, "multiclass")
