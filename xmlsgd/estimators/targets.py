"""Read the labels of users as a CSR: indicator matrices, lists of labels, one class per row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from ..data.csr import CSR, check_csr, from_dense, indicator, row_of
from ..data.frames import as_matrix, as_table, column_names, is_missing, only_column
from ..data.label_names import columns_by_name
from ..errors import DataError, shorten, warn
from .inputs import as_data_errors, check_no_iterator, check_plain, shape_of
from .names import (
    Names,
    as_names,
    check_text,
    first_number,
    label_array,
    names_of_columns,
    python_values,
    warn_of_unnormalized,
    with_new_names,
)

Form: TypeAlias = Literal["sparse", "dense", "lists", "multiclass"]


SEPARATORS = (",", ";", "|")  # characters that may join several labels in one string
# Classes are taken for joined labels if more than this share of their parts also occur at another position. The share
# is at most 0.18 for real names with commas, and 0.55 for made-up names "last, first".
SHARE_JOINED = 0.6
USE_INDICATOR = "pass an indicator matrix"
COLLECTIONS = list | tuple | set | frozenset | np.ndarray


@dataclass(frozen=True)
class Labels:
    """The labels of n rows: Y (n, L) without zeros, the names of its columns, and the form in which they were given."""

    Y: CSR
    classes: Names
    form: Form


def form_of(Y: Any) -> Form:
    """Return the form of labels: a matrix, a sequence of label collections, or one class per row.

    As in scikit-learn, lists of equal length that hold only 0 and 1 are the rows of an indicator matrix.
    """
    check_plain(Y, "Y")
    check_no_iterator(Y, "Y")
    _check_table(Y)
    Y = as_matrix(only_column(Y))
    if isinstance(Y, CSR) or sp.issparse(Y):
        return "sparse"
    if _is_lists(Y) and not _is_indicator(Y):
        return "lists"
    try:
        shape = shape_of(Y)
    except ValueError:  # raised for a pandas GroupBy whose groups differ in length
        shape = ()
    if len(shape) == 0:
        raise DataError(f"Y: must be a matrix, label lists or one class a row, got {shorten(Y)}")
    if len(shape) > 2:
        raise DataError(f"Y: must have 1 or 2 dimensions, got shape {shape}")
    if 0 in shape:
        raise DataError(f"Y: must have at least one row and one column, got shape {shape}")
    return "dense" if len(shape) == 2 and shape[1] > 1 else "multiclass"


def read_labels(Y: Any, classes: Names | None = None) -> Labels:
    """Return labels of any form; new ones get columns after those of `classes`.

    `classes` are the names of the columns so far; a table has names of its own. A matrix with more columns than names
    is an error, unless the names are the column numbers, from 0 or from 1.
    """
    form, named, Y = form_of(Y), _names_in_table(Y), as_matrix(only_column(Y))
    if form == "lists":
        return _read_lists(Y, classes)
    if form == "multiclass":
        return _read_multiclass(Y, classes)
    csr = _read_matrix(Y, form)
    if named is not None:
        classes = _with_table_columns(classes, named)
    n_known = 0 if classes is None else len(classes)
    if classes is None:
        classes = range(csr.n_cols)
    elif csr.n_cols > n_known and np.array_equal(classes, np.arange(n_known) + (first := first_number(classes))):
        classes = range(first, first + csr.n_cols)
    elif csr.n_cols > n_known:
        raise DataError(
            f"Y: must have a column for each of the {n_known} named labels, got {csr.n_cols}; name all of them"
        )
    elif csr.n_cols < n_known:
        wanted = f"must have a column for each of the {n_known} labels named or seen before"
        raise DataError(f"Y: {wanted}, got {csr.n_cols}")
    return Labels(csr, classes, form)


def _names_in_table(Y: Any) -> Names | None:
    """Return the column names of a table if all are strings, or all are integers other than the column numbers."""
    named = column_names(Y)
    if named is None or len(named) < 2:
        return None
    named = [label.item() if isinstance(label, np.generic) else label for label in named]
    kinds = {type(label) for label in named}
    if kinds == {tuple}:  # a MultiIndex of pandas
        remedy = "name them by texts: Y.columns = Y.columns.map('/'.join)"
        warn(f"Y: columns are named by tuples, got {shorten(named[0])}, so that labels are numbers; {remedy}")
    are_names = kinds == {str} or (kinds == {int} and named != [*range(len(named))])
    return names_of_columns(named, "Y") if are_names else None


def _with_table_columns(known: Names | None, named: Names) -> Names:
    """Return the column names of a table, which must begin with those known so far.

    The known names are kept if they are column numbers, or if the table has none of them: then they were given as
    `label_names`.
    """
    if known is None:
        return named
    if np.array_equal(known, np.arange(len(known))) or set(python_values(known)).isdisjoint(python_values(named)):
        return known
    return with_further_columns(known, named, "Y")


def with_further_columns(known: Names, named: Names, name: str) -> Names:
    """Return the names known so far, followed by further ones of `named`; raise `DataError` if their order differs."""
    before, given = python_values(known), python_values(named)
    n_both = min(len(before), len(given))
    if given[:n_both] == before[:n_both]:
        return named if len(given) > n_both else known
    at = next(i for i, pair in enumerate(zip(before, given, strict=False)) if pair[0] != pair[1])
    wanted = f"column {at} must be {shorten(before[at])}, as seen before, got {shorten(given[at])}"
    raise DataError(f"{name}: {wanted}; bring the columns into the order of classes_, new ones last")


def with_declared(known: Names | None, classes: Any, Y: Any) -> Names | None:
    """Return the names known so far, followed by those of `classes` that are new.

    If none are known, `classes` is sorted, unless Y is a matrix, whose columns it names in order. Raises `DataError` if
    `classes` lacks a known label, or has one twice.
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
    warn_of_unnormalized(set(named.tolist()).difference(() if known is None else python_values(known)), "classes")
    if known is None:
        return named if ordered else different
    names = with_new_names(known, named.tolist(), "classes")
    missing = set(python_values(known)).difference(named.tolist())
    if missing:
        raise DataError(f"classes: must hold every label seen before, got none that is {shorten(missing.pop())}")
    return names


def check_declared(names: Names, declared: Names | None) -> None:
    """Raise `DataError` if rows have labels that were not declared as `classes`."""
    if declared is not None and len(names) > len(declared):
        got = shorten(python_values(names)[len(declared)])
        raise DataError(f"classes: must hold every label of Y, got {got} in Y; add it, or leave classes out")


def _check_table(Y: Any) -> None:
    """Raise `DataError` for a table of several columns if one of them holds texts or lists."""
    named = column_names(Y)
    if named is None or len(named) < 2 or (first := np.asarray(as_table(Y)[:1])).dtype.kind in "biuf":
        return
    for column, value in zip(named, first[0] if len(first) else (), strict=False):
        if isinstance(value, str | COLLECTIONS):
            wanted = "must be one column of labels, or columns of 0 and 1"
            got = f"{len(named)} columns with {shorten(value)} in {shorten(column)}"
            raise DataError(f"Y: {wanted}, got {got}; pass one column, which may hold lists of labels")


def _is_lists(Y: Any) -> bool:
    """Return whether Y is a sequence of collections, and not a NumPy matrix."""
    if isinstance(Y, np.ndarray) and (Y.dtype != object or Y.ndim != 1):
        return False
    return isinstance(Y, list | tuple | np.ndarray) and any(isinstance(row, COLLECTIONS) for row in Y)


def _is_indicator(Y: Iterable[Any]) -> bool:
    """Return whether all rows have the same length, above 1, and hold only 0 and 1."""
    rows = [row for row in Y if isinstance(row, list | tuple | np.ndarray)]
    if len(rows) < len(list(Y)) or len(rows[0]) < 2:
        return False
    width = len(rows[0])
    return all(len(row) == width and all(not isinstance(x, str) and x in (0, 1) for x in row) for row in rows)


def _read_matrix(Y: Any, form: Form) -> CSR:
    """Return an indicator matrix as a CSR without zeros."""
    if isinstance(Y, CSR):
        check_csr(Y, "Y")
        csr = Y
    elif form == "sparse":
        csr = CSR.from_scipy(Y, "Y")
    else:
        dense = np.asarray(Y)
        if dense.dtype.kind not in "biuf":
            dense = _numbers(dense)
        _check_finite(dense)
        csr = CSR.from_scipy(from_dense(dense), "Y")
    if csr.n_cols == 0:
        raise DataError(f"Y: must have at least one label column, got shape {csr.shape}")
    is_one = csr.data == 1
    if is_one.all():
        return csr
    wrong = np.flatnonzero(~is_one & (csr.data != 0))
    if len(wrong):
        row = row_of(csr.indptr, wrong[0])
        got = f"{csr.data[wrong[0]]:g} in column {csr.indices[wrong[0]]}"
        remedy = "pass Y != 0 to drop the values, or lists if they are labels"
        raise DataError(f"Y: row {row}: an indicator must hold 0 and 1, got {got}; {remedy}")
    return csr.where(is_one)


def _check_finite(Y: np.ndarray) -> None:
    """Raise `DataError` for a value that is not finite: its row, and the words that scikit-learn's checks require."""
    if Y.dtype.kind == "f" and not (finite := np.isfinite(Y).reshape(len(Y), -1).all(axis=1)).all():
        row = int(np.argmin(finite))
        try:
            assert_all_finite(Y[row], input_name="y")
        except ValueError as error:
            reason = str(error).rstrip(".")
            raise DataError(f"Y: row {row}: {reason}; leave rows without known labels out") from error


def _check_labels(labels: Iterable[tuple[int, Any]]) -> None:
    """Raise `DataError` for a missing label, or one of another type than those before; labels : (row, label)."""
    before: Any = None
    for row, given in labels:
        label = given.item() if isinstance(given, np.generic) else given
        if is_missing(label):
            remedy = "leave such rows out; of label lists, [] is none"
            raise DataError(f"Y: row {row}: a label is missing, got {shorten(label)}; {remedy}")
        before = label if before is None else before
        if type(label) is not type(before):
            got = f"{shorten(before)} and {shorten(label)}"
            raise DataError(f"Y: row {row}: labels must be all of one type, got {got}; strings suit all")


def _numbers(Y: np.ndarray) -> np.ndarray:
    """Return a matrix of objects as floats; raise `DataError` for a value that is no number."""
    for row, cells in enumerate(Y):
        for cell in cells:
            if not isinstance(cell, Real | np.bool_):
                remedy = "give missing cells a value" if is_missing(cell) else "pass lists of labels for names"
                raise DataError(f"Y: row {row}: an indicator must hold 0 and 1, got {shorten(cell)}; {remedy}")
    return Y.astype(np.float64)


def _read_lists(Y: Any, classes: Names | None) -> Labels:
    """Return label lists as `Labels`. Columns are those of `classes`, then new labels in sorted order.

    A label that occurs twice in a row counts once.
    """
    rows = [set(_items(row, i)) for i, row in enumerate(Y)]
    found = set().union(*rows)
    if len({isinstance(label, str) for label in found}) > 1:
        _check_labels(((i, label) for i, row in enumerate(rows) for label in row))
    names = _with_new_labels(classes, found)
    if len(names) == 0:
        raise DataError(f"Y: must have at least one label, got none in {len(rows)} rows")
    if classes is None and max(map(len, rows)) == 1 and isinstance(names[0], str):
        _warn_of_joined(python_values(names))
    indicators = indicator(rows, columns_by_name(python_values(names), found, "Y", USE_INDICATOR))
    return Labels(replace(indicators, n_cols=len(names)), names, "lists")


def _items(row: Any, i: int) -> Iterable[Any]:
    """Return the labels of one row as Python values; whole floats, as scikit-learn reads from files, as integers."""
    if isinstance(row, np.ndarray):
        row = row.tolist()
    if isinstance(row, str) or not isinstance(row, list | tuple | set | frozenset):
        raise DataError(f"Y: row {i}: must be a list of labels, got {shorten(row)}; [] is none")
    labels = [label.item() if isinstance(label, np.generic) else label for label in row]
    labels = [int(label) if isinstance(label, float) and label.is_integer() else label for label in labels]
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, int | str):
            raise DataError(f"Y: row {i}: a label must be an int or a string, got {shorten(label)}")
        if label in ("", -1):  # an empty cell that was split, or padding, as in the answers of `predict_topk`
            wanted, remedy = "a label in a list must not be '' or -1", "leave it out if it means none, [] is none"
            raise DataError(f"Y: row {i}: {wanted}, got {label!r}; {remedy}")
    return labels


def _read_multiclass(Y: Any, classes: Names | None) -> Labels:
    """Return one class per row as `Labels`. Columns are those of `classes`, then new classes in sorted order."""
    with as_data_errors("Y"):
        # As objects, because NumPy would turn numbers next to strings into strings, and large integers into floats.
        y = column_or_1d(np.array(Y, dtype=object) if isinstance(Y, list | tuple) else Y, warn=True)
        if y.dtype == object:
            if set(map(type, y)) != {str}:
                _check_labels(enumerate(y.tolist()))
            y = as_names(y, "Y")
        if y.dtype.kind not in "biufUO":
            raise DataError(f"Y: classes must be numbers or strings, got {y.dtype}")
        _check_finite(y)
        if y.dtype.kind == "f":  # for others, the check could only warn of many classes
            check_classification_targets(y)
    found, ids = np.unique(y, return_inverse=True)
    if classes is None:
        if found.dtype.kind in "UO":
            check_text(found.tolist(), "Y")
            warn_of_unnormalized(found.tolist(), "Y")
            _warn_of_joined(found.tolist())
        classes = found
    else:
        classes = _with_new_labels(classes, found.tolist())
        index = columns_by_name(python_values(classes), found.tolist(), "Y", USE_INDICATOR)
        ids = np.array([index[label] for label in found.tolist()], dtype=np.int32)[ids]
    indices = np.asarray(ids, dtype=np.int32).ravel()
    n = len(indices)
    csr = CSR(np.arange(n + 1, dtype=np.int64), indices, np.ones(n, np.float32), len(classes))
    return Labels(csr, classes, "multiclass")


def _warn_of_joined(classes: list[str]) -> None:
    """Warn if classes look like several labels joined in one string, unlike names such as "Smith, John".

    Parts of such names, and of paths such as "shoes|boots", have one position; those of joined labels have several.
    Where half of the classes have a semicolon or a bar, which names hardly contain, one such part is enough.
    """
    for separator in SEPARATORS:
        n_joined = sum(separator in label for label in classes)
        if not n_joined:
            continue
        split = {label: [part.strip() for part in label.split(separator)] for label in classes}
        joined = [(label, part) for label, parts in split.items() if len(parts) > 1 for part in parts]
        positions: dict[str, set[int]] = {}
        for parts in split.values():
            for i, part in enumerate(parts):
                positions.setdefault(part, set()).add(i)
        moved = [label for label, part in joined if len(positions[part]) > 1]
        is_no_name = separator != "," and 2 * n_joined >= len(classes)
        if len(moved) > (0 if is_no_name else SHARE_JOINED * len(joined)):
            is_spaced = sum(f"{separator} " in label for label in classes) == n_joined
            found = f"{shorten(moved[0])} is one label, though its parts occur in others"
            remedy = f"pass lists of them, as by text.split({separator + ' ' * is_spaced!r})"
            warn(f"Y: {found}; for several labels a row, {remedy}")
            return


def _with_new_labels(known: Names | None, found: Iterable[Any]) -> Names:
    """Return the names known so far, followed by those of `found` that are new, sorted."""
    ordered = np.sort(label_array(list(found), "Y"))
    warn_of_unnormalized(set(ordered.tolist()).difference(() if known is None else python_values(known)), "Y")
    return ordered if known is None else with_new_names(known, ordered.tolist(), "Y")
