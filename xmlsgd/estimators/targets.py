"""Labels as users hold them, as a CSR: indicator matrices, lists of labels, one class a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from ..data.csr import CSR, indicator, row_of
from ..data.frames import as_matrix, only_column
from ..errors import DataError, shorten
from .inputs import check_csr, check_no_iterator, check_plain, refusals, shape_of
from .names import Names, as_names, check_text, extended, plain, values
from .parameters import is_amount

Form: TypeAlias = Literal["sparse", "dense", "lists", "multiclass"]


COLLECTIONS = list | tuple | set | frozenset | np.ndarray


@dataclass(frozen=True)
class Labels:
    """The labels of n rows: Y (n, L) without zeros, the name of each column, and the form in which they came."""

    Y: CSR
    classes: Names
    form: Form


def form_of(Y: Any, name: str = "Y") -> Form:
    """Return the form of labels: a matrix, a sequence of label collections, or one class a row.

    As in scikit-learn, lists of one length that hold 0 and 1 only are the rows of an indicator.
    """
    check_plain(Y, name)
    check_no_iterator(Y, name)
    Y = as_matrix(only_column(Y))
    if isinstance(Y, CSR) or sp.issparse(Y):
        return "sparse"
    if _is_lists(Y) and not _is_indicator(Y):
        return "lists"
    shape = shape_of(Y)
    if len(shape) == 0:
        raise DataError(f"{name}: must be a matrix, label lists or one class a row, got {shorten(Y)}")
    if len(shape) > 2:
        raise DataError(f"{name}: must have 1 or 2 dimensions, got shape {shape}")
    return "dense" if len(shape) == 2 and shape[1] > 1 else "multiclass"


def read_labels(Y: Any, classes: Names | None = None, name: str = "Y") -> Labels:
    """Return labels of any form; those not among `classes` get columns behind them.

    `classes` are the names of the columns so far. A matrix with more columns than names is an error unless the names
    are the column numbers.
    """
    form, Y = form_of(Y, name), as_matrix(only_column(Y))
    if form == "lists":
        return _read_lists(Y, classes, name)
    if form == "multiclass":
        return _read_multiclass(Y, classes, name)
    csr = _read_matrix(Y, form, name)
    n_known = 0 if classes is None else len(classes)
    if classes is None or (csr.n_cols > n_known and np.array_equal(classes, np.arange(n_known))):
        classes = range(csr.n_cols)
    elif csr.n_cols > n_known:
        raise DataError(
            f"{name}: must have a column for each of the {n_known} named labels, got {csr.n_cols}; name all of them"
        )
    elif csr.n_cols < n_known:
        raise DataError(f"{name}: must have at least the {n_known} columns seen before, got {csr.n_cols}")
    return Labels(csr, classes, form)


def declared(known: Names | None, classes: Any, Y: Any) -> Names | None:
    """Return the names known so far and, behind them, those of `classes` that are new.

    The first names are sorted, unless Y is a matrix, whose columns they name in their order. Raises `DataError` where
    `classes` lacks a label that is known or holds one twice.
    """
    if classes is None:
        return known
    ordered = known is None and form_of(Y) in ("sparse", "dense")
    if ordered and isinstance(classes, set | frozenset):
        raise DataError("classes: must be in the order of the columns of Y, got a set; pass a list")
    named = as_names(classes, "classes")
    different, counts = np.unique(named, return_counts=True)
    if len(different) < len(named):
        raise DataError(f"classes: must hold every label once, got {shorten(different[counts > 1].tolist()[0])} twice")
    if known is None:
        return named if ordered else different
    names = extended(known, named.tolist(), "classes")
    missing = set(values(known)).difference(named.tolist())
    if missing:
        raise DataError(f"classes: must hold every label seen before, got none that is {shorten(missing.pop())}")
    return names


def check_declared(names: Names, declared: Names | None) -> None:
    """Raise `DataError` where rows brought labels beyond those declared as `classes`."""
    if declared is not None and len(names) > len(declared):
        got = shorten(values(names)[len(declared)])
        raise DataError(f"classes: must hold every label of Y, got {got} in Y; add it, or leave classes out")


def label_weights(class_weight: Any, labels: Labels) -> np.ndarray | None:
    """Return the weight of each row by its class, float32 (n,); only one class a row has such a weight."""
    if class_weight is None:
        return None
    if labels.form != "multiclass":
        raise DataError("class_weight: works for one class a row (1-D Y); weigh rows with sample_weight")
    if isinstance(class_weight, dict):
        by_class = _given_weights(class_weight, values(labels.classes))
    elif isinstance(class_weight, str) and class_weight == "balanced":
        counts = labels.Y.column_counts()
        by_class = len(labels.Y.indices) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    else:
        raise DataError(f"class_weight: must be 'balanced', a dict or None, got {shorten(class_weight)}")
    return by_class.astype(np.float32)[labels.Y.indices]


def _given_weights(class_weight: dict[Any, Any], classes: list[Any]) -> np.ndarray:
    """Return the weight of each class, 1 where it is not given; with weight 0 the rows of a class are not learned."""
    unknown = [key for key in class_weight if key not in set(classes)]
    if unknown:
        raise DataError(f"class_weight: must name classes of Y, got {shorten(unknown[0])}")
    for key, weight in class_weight.items():
        if not is_amount(weight):
            got = f"{shorten(weight)} for {shorten(key)}"
            raise DataError(f"class_weight: a weight must be a finite number of at least 0, got {got}")
    return np.array([class_weight.get(key, 1.0) for key in classes])


def _is_lists(Y: Any) -> bool:
    """Return whether Y is a sequence of collections that does not already form a matrix of NumPy."""
    if isinstance(Y, np.ndarray) and (Y.dtype != object or Y.ndim != 1):
        return False
    return isinstance(Y, list | tuple | np.ndarray) and any(isinstance(row, COLLECTIONS) for row in Y)


def _is_indicator(Y: Iterable[Any]) -> bool:
    """Return whether all rows are of the same length, above 1, and hold 0 and 1 only."""
    rows = [row for row in Y if isinstance(row, list | tuple | np.ndarray)]
    if len(rows) < len(list(Y)) or len(rows[0]) < 2:
        return False
    width = len(rows[0])
    return all(len(row) == width and all(not isinstance(x, str) and x in (0, 1) for x in row) for row in rows)


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
        with refusals(name):
            assert_all_finite(dense, input_name="y")
        half = dense.dtype == np.float16  # which scipy does not know
        csr = CSR.from_scipy(sp.csr_array(dense.astype(np.float32) if half else dense), name)
    if csr.n_cols == 0:
        raise DataError(f"{name}: must have at least one label column, got shape {csr.shape}")
    is_one = csr.data == 1
    if is_one.all():
        return csr
    wrong = np.flatnonzero(~is_one & (csr.data != 0))
    if len(wrong):
        row = row_of(csr.indptr, wrong[0])
        got = f"{csr.data[wrong[0]]:g} in column {csr.indices[wrong[0]]}"
        raise DataError(f"{name}: row {row}: an indicator must hold 0 and 1, got {got}; pass Y != 0 to drop the values")
    return csr.where(is_one)


def _read_lists(Y: Any, classes: Names | None, name: str) -> Labels:
    """Return label lists as columns in the order of `classes`, then sorted; a label twice in a row counts once."""
    rows = [set(_items(row, i, name)) for i, row in enumerate(Y)]
    found = set().union(*rows)
    names = _with_new(classes, found, name)
    if len(names) == 0:
        raise DataError(f"{name}: must have at least one label, got none in {len(rows)} rows")
    return Labels(indicator(rows, _columns(names)), names, "lists")


def _items(row: Any, i: int, name: str) -> Iterable[Any]:
    """Return the labels of one row as Python values."""
    if isinstance(row, np.ndarray):
        row = row.tolist()
    if isinstance(row, str) or not isinstance(row, list | tuple | set | frozenset):
        raise DataError(f"{name}: row {i}: must be a list of labels, got {shorten(row)}")
    labels = [label.item() if isinstance(label, np.generic) else label for label in row]
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, int | str):
            raise DataError(f"{name}: row {i}: a label must be an int or a string, got {shorten(label)}")
    return labels


def _read_multiclass(Y: Any, classes: Names | None, name: str) -> Labels:
    """Return one class a row as columns in the order of `classes`, then sorted."""
    with refusals(name):
        # NumPy would make strings of numbers beside strings, and floats of large integers.
        y = column_or_1d(np.array(Y, dtype=object) if isinstance(Y, list | tuple) else Y, warn=True)
        if y.dtype == object:
            y = as_names(y, name)
        if y.dtype.kind not in "biufUO":
            raise DataError(f"{name}: classes must be numbers or strings, got {y.dtype}")
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
    found, ids = np.unique(y, return_inverse=True)
    if classes is None:
        if found.dtype.kind in "UO":
            check_text(found.tolist(), name)
        classes = found
    else:
        classes = _with_new(classes, found.tolist(), name)
        index = _columns(classes)
        ids = np.array([index[label] for label in found.tolist()], dtype=np.int32)[ids]
    indices = np.asarray(ids, dtype=np.int32).ravel()
    n = len(indices)
    csr = CSR(np.arange(n + 1, dtype=np.int64), indices, np.ones(n, np.float32), len(classes))
    return Labels(csr, classes, "multiclass")


def _with_new(known: Names | None, found: Iterable[Any], name: str) -> Names:
    """Return the names known so far and, behind them, those `found` that are new, sorted."""
    ordered = np.sort(plain(list(found), name))
    return ordered if known is None else extended(known, ordered.tolist(), name)


def _columns(names: Names) -> dict[Any, int]:
    """Return the column of each name, as a Python value."""
    return {label: column for column, label in enumerate(values(names))}
