"""Read the X of users as a CSR: dense and sparse arrays, data frames, `CSR`, texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from ..data.csr import CSR, check_csr, not_finite
from ..data.frames import as_list, as_table, column_names, is_missing, only_column
from ..data.validation import check_unmasked
from ..data.vectorizer import TextVectorizer
from ..errors import DataError, shorten
from .names import MappedNames, label_array
from .vectorizer_choice import choose_vectorizer

if TYPE_CHECKING:
    from .dense_features import DenseFeatures
    from .targets import Labels


# Of a table that is refused: rows that are looked at, and words of a cell from which on a column is one of texts.
LOOKED_AT, FEW_WORDS = 20, 2


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """The features of a model: how X is read.

    n_features : number of features. names : names of the features, if X had any. vectorizer : turns texts into rows;
    None if X was no texts. owner : name of the estimator in messages. words : words of the features for explanations,
    given by the user for an X without names. damped : whether values of X are damped when they are read
    (`damped_values`). dense : dense features, which are scaled, and landmarks, which rows get in front; None for none.
    """

    n_features: int
    names: np.ndarray | None = None
    vectorizer: TextVectorizer | None = None
    owner: str = "XMLClassifier"
    words: np.ndarray | MappedNames | None = None
    damped: bool = False
    dense: DenseFeatures | None = None

    @property
    def n_landmarks(self) -> int:
        """The number of landmarks, which are the first columns of transformed rows."""
        return 0 if self.dense is None else self.dense.n_landmarks

    def transform(self, X: CSR, n_jobs: int | None = None) -> CSR:
        """Return the rows X as the model learns them: with damped values and landmarks, if it has any."""
        rows = damped_values(X) if self.damped else X
        return rows if self.dense is None else self.dense.transform(rows, n_jobs)

    @property
    def shown(self) -> Any:
        """Names of the features in explanations; None for their numbers."""
        if self.vectorizer is not None:
            return self.vectorizer.words
        named = self.names if self.words is None else self.words
        return named.array if isinstance(named, MappedNames) else named

    @property
    def explained(self) -> Any:
        """Names of the columns of transformed rows, in explanations; None for their numbers."""
        if self.dense is None:
            return self.shown
        landmarks = [f"near row {row}" for row in self.dense.rows.tolist()]
        return [*landmarks, *(range(self.n_features) if self.shown is None else self.shown)]

    def with_words(self, words: Any) -> FeatureSpace:
        """Return the features with a word for each; features of texts keep theirs. `DataError` for a wrong number."""
        if words is None or self.vectorizer is not None:
            return self
        wanted = f"feature_names: must have a word for each of {self.n_features} features"
        if not isinstance(words, Iterable) or isinstance(words, str | bytes):
            raise DataError(f"{wanted}, got {shorten(words)}")
        listed = [str(word) for word in words]
        if len(listed) != self.n_features:
            raise DataError(f"{wanted}, got {len(listed)}")
        return replace(self, words=label_array(listed, "feature_names"))


def damped_values(X: CSR) -> CSR:
    """Return X with the values raised to 3/4, with their signs; the result shares the indices of X.

    Models with candidates learn such rows, in which a few large values weigh less (docs/decisions/candidates.md).
    """
    roots = np.abs(np.asarray(X.data))
    np.sqrt(roots, out=roots)
    values = np.sqrt(roots)
    values *= roots
    return CSR(X.indptr, X.indices, np.copysign(values, X.data, out=values), X.n_cols)


def learn_features(
    X: Any, given: TextVectorizer | None, label_texts: Any, labels: Callable[[], Labels], owner: str
) -> tuple[CSR, FeatureSpace]:
    """Return X as a CSR, before it is transformed (which is planned later), and its features.

    The features hold a copy of the vectorizer `given`. The copy is fitted to X if X is texts and `given` is not fitted.
    A fitted one keeps its words, also if X is rows, which are then taken for rows that it made of texts.

    label_texts : texts of labels, not checked here, whose words become features, too. labels : returns the labels of
    the rows, by which a vectorizer is chosen if none is given. owner : as in `FeatureSpace`.
    """
    X, vectorizer = read_table(X), None
    if given is not None and given.is_fitted:
        vectorizer = copy(given)  # the caller may fit its own to other texts
    elif is_text(X):
        vectorizer = choose_vectorizer(X, labels().Y) if given is None else TextVectorizer(**given.options)
        vectorizer.fit(X, label_texts=_texts_among(label_texts))
    rows, names = _checked_rows(X, FeatureSpace(0, None, vectorizer, owner), growing=True)
    _check_words(rows, vectorizer)
    return rows, FeatureSpace(rows.n_cols, names, vectorizer, owner)


def grow_features(
    X: Any, known: FeatureSpace, n_known: int | None, label_texts: Any, n_jobs: int | None
) -> tuple[CSR, FeatureSpace]:
    """Return X as the model reads it, and its features; X may have more columns than `known`, added on the right.

    n_known : how many texts were learned before; None to add no words of new texts. label_texts : as in
    `learn_features`.
    """
    X = read_table(X)
    own = known.vectorizer
    if own is not None and n_known is not None and is_text(X) and own.n_features == known.n_features:
        known = replace(known, vectorizer=own.with_words_of(X, n_known, _texts_among(label_texts)))
    rows, names = _checked_rows(X, known, growing=True)
    before = [] if known.names is None or rows.n_cols <= known.n_features else list(known.names)
    if before and (names is None or list(names[: known.n_features]) != before):
        text = "features must bear the names seen before; append new ones"
        raise DataError(f"X: the first {known.n_features} {text}")
    if rows.n_cols < known.n_features:
        raise _wrong_width(rows, known)
    _check_words(rows, known.vectorizer)
    words = known.words if rows.n_cols == known.n_features else None
    return known.transform(rows, n_jobs), replace(known, n_features=rows.n_cols, names=names, words=words)


def read_features(X: Any, known: FeatureSpace, n_jobs: int | None = None) -> CSR:
    """Return X as the model reads it, checked against its features `known`."""
    rows, _ = _checked_rows(read_table(X), known)
    if rows.n_cols != known.n_features:
        raise _wrong_width(rows, known)
    return known.transform(rows, n_jobs)


def _check_words(rows: CSR, vectorizer: TextVectorizer | None) -> None:
    """Raise `DataError` unless rows have a feature for each word of the vectorizer by which the model reads texts."""
    if vectorizer is not None and rows.n_cols != vectorizer.n_features:
        wanted = f"must have the {vectorizer.n_features} features of the fitted vectorizer, got {rows.n_cols}"
        raise DataError(f"X: {wanted}; pass texts, or rows that it makes of them")


def _wrong_width(rows: CSR, known: FeatureSpace) -> DataError:
    text = f"X has {rows.n_cols} features, but {known.owner} is expecting {known.n_features} features as input"
    remedy = "; pass texts, or rows by vectorizer_.transform(texts), which knows the words learned since"
    return DataError(f"{text}{remedy if known.vectorizer is not None else ''}")


def _checked_rows(X: Any, known: FeatureSpace, growing: bool = False) -> tuple[CSR, np.ndarray | None]:
    """Return a table X as a CSR, and the names of its features; scikit-learn checks names and dense matrices.

    Entries of zero, which would count as features, are left out, except for those of a memory map, which stays on the
    disk.

    growing : whether to accept columns in addition to those of `known`, and their names.
    """
    if isinstance(X, str | bytes):
        raise DataError(f"X: must be a list of texts or a matrix, got one text {shorten(X)}; pass [text]")
    if is_text(X):
        if known.vectorizer is None:
            remedy = "fit(texts, y) learns from texts; in a Pipeline, pass pipeline[:-1].transform(texts)"
            raise DataError(f"X: must be rows as those that were learned, got texts; {remedy}")
        X = known.vectorizer.rows_of(X)
    if isinstance(X, CSR):
        check_csr(X, "X")
        rows = X if isinstance(X.data, np.memmap) else X.without_zeros()
        return rows, known.names if rows.n_cols == known.n_features else None
    check_plain(X, "X")
    _check_no_words(X)
    reset = _columns_of(X) > known.n_features and growing
    names = known.names
    if reset or names is not None or not _is_plain_csr(X):
        checker = type(known.owner, (BaseEstimator,), {})()  # messages contain the name of its class
        if not reset:
            checker.n_features_in_ = known.n_features
            if names is not None:
                checker.feature_names_in_ = names
        with as_data_errors("X"):
            X = validate_data(
                checker, X, reset=reset, accept_sparse="csr", dtype=[np.float32, np.float64], ensure_all_finite=False
            )
        names = getattr(checker, "feature_names_in_", None)
    return CSR.from_scipy(X if sp.issparse(X) else _sparse_rows(X), "X").without_zeros(), names


class NotANumber(DataError, TypeError):
    """A value is not a number; also a `TypeError`, as scikit-learn requires."""


@contextmanager
def as_data_errors(name: str) -> Iterator[None]:
    """Turn errors by which scikit-learn or NumPy refuse data into a `DataError` of one line."""
    try:
        yield
    except DataError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        kind = NotANumber if isinstance(error, TypeError) else DataError
        raise kind(f"{name}: {' '.join(str(error).split())}") from error


def check_plain(data: Any, name: str) -> None:
    """Raise `DataError` for arrays that NumPy would misread (masked, matrix, complex, dates), and for lazy frames."""
    if callable(getattr(data, "collect", None)) and not hasattr(data, "__array__"):  # a lazy frame of Polars
        raise DataError(f"{name}: must be read, got a {type(data).__name__}; call its collect() first")
    check_unmasked(data, name)
    if isinstance(data, np.matrix):
        raise DataError(f"{name}: np.matrix is not supported, got one; pass np.asarray of it")
    dtypes = getattr(data, "dtypes", None)  # of the columns of a data frame
    each = dtypes if isinstance(dtypes, Iterable) else [getattr(data, "dtype", None)]
    strange: list[Any] = [dtype for dtype in each if getattr(dtype, "kind", "f") in "cmM"]
    if strange:
        hint = "Complex data not supported" if strange[0].kind == "c" else "dates and times have no unit as numbers"
        raise DataError(f"{name}: must hold real numbers, got {strange[0]}; {hint}; convert it first")


def check_no_iterator(data: Any, name: str) -> None:
    """Raise `DataError` for an iterator, which has no length and can be read only once."""
    if isinstance(data, Iterator):
        raise DataError(f"{name}: must have a length, got a {type(data).__name__}; pass list(...) of it")


def _check_no_words(X: Any) -> None:
    """Raise a `DataError` that says what to do with a table that has texts, or with lists of words."""
    if sp.issparse(X):
        return
    check_no_iterator(X, "X")
    names = column_names(X)
    rows = X if names is None else np.asarray(X[:LOOKED_AT])
    first = rows[0] if isinstance(rows, list | tuple | np.ndarray) and len(rows) else None
    if isinstance(first, bytes):
        raise DataError(f"X: must be texts or numbers, got bytes, {shorten(first)}; decode them, as by text.decode()")
    cells = () if names is None or first is None else zip(names, first, strict=False)
    if lists := [name for name, cell in cells if _is_list(cell)]:
        raise DataError(
            f"X: must be texts or numbers, got lists in column {shorten(lists[0])}; leave it out, or make columns of "
            "it, as by FunctionTransformer(np.stack) in a ColumnTransformer"
        )
    if not isinstance(first, list | tuple | set | np.ndarray) or not any(isinstance(value, str) for value in first):
        return
    if isinstance(rows, list):
        got = shorten(first)
        raise DataError(f"X: must be texts or a feature matrix, got lists of words, {got}; are X and Y swapped?")
    dtypes = getattr(X, "dtypes", None)  # of the columns of a data frame
    categories = [str(dtype).lower().startswith("categor") for dtype in dtypes] if isinstance(dtypes, Iterable) else []
    raise _table_of_texts(rows, first, names, set(np.flatnonzero(categories)))


def _table_of_texts(rows: np.ndarray, first: Any, names: Any, categories: set[int]) -> DataError:
    """Return the error for a table with texts, which suggests a `ColumnTransformer`.

    first : its first row. categories : columns of a categorical type, which hold no texts.
    """
    columns = {i: [str(row[i]) for row in rows[:LOOKED_AT]] for i, cell in enumerate(first) if isinstance(cell, str)}
    strings = sorted(columns, key=lambda i: len("".join(columns[i])), reverse=True)
    own = [i for i in strings if i not in categories]
    worded = [i for i in own[1:] if sum(len(cell.split()) for cell in columns[i]) >= FEW_WORDS * len(columns[i])]
    texts = [*own[:1], *worded]
    name_of = range(len(first)) if names is None else names
    parts = [f"('text{n or ''}', TextVectorizer(), {name_of[i]!r})" for n, i in enumerate(texts)]
    if classes := [name_of[i] for i in strings if i not in texts]:
        parts.append(f"('classes', OneHotEncoder(handle_unknown='ignore'), {classes!r})")
    got = f"{'texts' if texts else 'categories'} in column {shorten(name_of[texts[0] if texts else strings[0]])}"
    return DataError(
        f"X: must be one column of texts, or numbers, got a table with {got}; "
        f"{'pass that column alone, or ' if texts else ''}make numbers of all: ColumnTransformer([{', '.join(parts)}], "
        "remainder=StandardScaler()) before the classifier in a Pipeline"
    )


def _is_plain_csr(X: Any) -> bool:
    """Return whether `validate_data`, which takes longer than predicting a row, would return X unchanged."""
    return sp.issparse(X) and X.format == "csr" and X.dtype in (np.float32, np.float64) and min(X.shape) > 0


def read_table(X: Any) -> Any:
    """Return a table with a single column of texts as a list or array, other tables as scikit-learn reads them."""
    if sp.issparse(X) and X.ndim != 2:  # a row of a sparse array
        raise _not_2d(X.shape)
    if isinstance(X, np.ndarray):
        return X[:, 0] if X.ndim == 2 and X.shape[1] == 1 and is_text(X[:, 0]) else X
    column = only_column(X)
    return column if column_names(X) is None or is_text(column) or _has_lists(column) else as_table(X)


def is_text(X: Any) -> bool:
    """Return whether X is a sequence of strings, some of which may be missing."""
    if not isinstance(X, list | tuple) and not (isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "OUT"):
        return False
    return isinstance(next((text for text in X if not is_missing(text)), None), str)


def _has_lists(column: Any) -> bool:
    return isinstance(column, list) and len(column) > 0 and _is_list(column[0])


def _is_list(cell: Any) -> bool:
    return isinstance(cell, list | tuple | np.ndarray)


def _texts_among(label_texts: Any) -> list[str]:
    """Return the texts in a list or dictionary of label texts; an empty list for a matrix."""
    listed = label_texts.values() if isinstance(label_texts, dict) else as_list(label_texts)
    is_listed = isinstance(listed, Iterable) and not sp.issparse(listed) and getattr(listed, "ndim", 1) == 1
    return [text for text in listed if isinstance(text, str)] if is_listed else []


def shape_of(data: Any) -> tuple[int, ...]:
    """Return the shape of `np.asarray(data)`; () for a scalar."""
    shape = getattr(data, "shape", None)
    return shape if isinstance(shape, tuple) else np.asarray(data).shape


def _columns_of(X: Any) -> int:
    """Return the number of columns of a matrix; raise `DataError` if X is none."""
    if sp.issparse(X) and X.ndim == 2:
        return int(X.shape[1])
    with as_data_errors("X"):
        shape = shape_of(X)
    if len(shape) == 0:
        raise DataError(f"X: must be a dense or sparse matrix of numbers, got {shorten(X)}")
    if shape == (0,):
        raise DataError("X: must have at least one row, got 0")
    if len(shape) == 1:
        if is_missing(first := next(iter(X))):
            wanted = "must be a text or numeric features"
            raise DataError(f"X: row 0: {wanted}, got {first}; write '' where there is no text")
        if any(isinstance(text, str) for text in X):
            row, other = next((row, text) for row, text in enumerate(X) if not isinstance(text, str))
            raise DataError(f"X: row {row}: must be a text, as others are, got {shorten(other)}; str() makes it one")
        raise _not_2d(shape)
    return shape[1]


def _not_2d(shape: tuple[int, ...]) -> DataError:
    remedy = "Reshape your data: X.reshape(1, -1) for one row, X.reshape(-1, 1) for one feature"
    return DataError(f"X: Expected 2D array, got shape {shape}. {remedy}")


def _sparse_rows(X: np.ndarray) -> sp.csr_array:
    """Return a dense matrix as sparse rows; raise `DataError` for a value that is not finite."""
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        column = int(np.isfinite(X[bad[0]]).argmin())
        got = not_finite(X[bad[0], column], column)
        raise DataError(f"X: row {bad[0]}: Input X contains NaN or infinity, {got}")
    return sp.csr_array(X)
