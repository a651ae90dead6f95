"""What all metrics begin with: check labels and prediction, take the top k of each row, compare with the truth."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..data.csr import CSR, canonical, check_csr, from_dense, pointers
from ..data.validation import check_unmasked, is_positive_integer
from ..errors import DataError, shorten

Matrix: TypeAlias = Any  # CSR, scipy sparse matrix or array, numpy array

MAX_RANK = 100  # k may be this large even if there are fewer labels
LISTS_REMEDY = (
    "; convert lists of labels by MultiLabelBinarizer(classes=[*model.classes_, *unknown_labels]).fit_transform(lists)"
)
DENSE_CHUNK = 1 << 22  # dense scores ranked at once, so that temporary arrays take about 100 MB at most


class Compared(NamedTuple):
    """Checked true labels and ranking."""

    Y: CSR  # true labels
    labels: np.ndarray  # int64 (n, k), best first, padded with -1
    hits: np.ndarray  # bool (n, k), whether they are true
    at_least_one: np.ndarray  # int64 (n, 1): max(n_i, 1), a divisor for rows with and without true labels


def compare(Y_true: Matrix, predicted: Matrix, k: int) -> Compared:
    """Check true labels and prediction, and compare the top k of each row with its true labels."""
    if not is_positive_integer(k):
        raise DataError(f"k: must be an integer of at least 1, got {shorten(k)}")
    Y = labels_of(Y_true, "Y_true")
    if k > max(Y.n_cols, MAX_RANK):
        raise DataError(f"k: must be at most the number of labels {Y.n_cols}, or {MAX_RANK}, got {shorten(k)}")
    labels = _top_labels(predicted, Y.shape, int(k))
    return Compared(Y, labels, Y.has(labels), np.maximum(np.diff(Y.indptr), 1)[:, None])


def labels_of(matrix: Matrix, name: str) -> CSR:
    """Return the true labels as a canonical CSR without zeros."""
    check_unmasked(matrix, name)
    if isinstance(matrix, CSR):
        check_csr(matrix, name)
        Y = matrix
    elif hasattr(matrix, "tocsr"):
        Y = CSR.from_scipy(matrix, name)
    elif isinstance(matrix, list | tuple) and any(isinstance(row, list | tuple | set | frozenset) for row in matrix):
        raise DataError(f"{name}: must be an indicator matrix, sparse or an array, got lists{LISTS_REMEDY}")
    else:
        try:
            dense = np.asarray(matrix)
        except ValueError:  # lists of several lengths
            dense = np.asarray(matrix, dtype=object)
        if dense.ndim != 2 or dense.dtype.kind not in "biuf":
            remedy = LISTS_REMEDY if dense.dtype.kind in "OU" else ""
            if remedy and dense.ndim == 1 and dense.size and isinstance(dense[0], str):  # one class a row
                remedy = "; convert names of classes by label_binarize(names, classes=model.classes_)"
            raise DataError(f"{name}: must be a matrix of numbers, got {dense.dtype} of shape {dense.shape}{remedy}")
        Y = CSR.from_scipy(from_dense(dense), name)
    if Y.n_rows == 0:
        raise DataError(f"{name}: must have at least one row, got shape {Y.shape}")
    return Y.without_zeros()


def as_rows(given: Any, name: str) -> np.ndarray:
    """Return an array; raise `DataError` for a masked one, and for lists of several lengths."""
    check_unmasked(given, name)
    try:
        return np.asarray(given)
    except ValueError as error:
        raise DataError(f"{name}: must have rows of one length, got several; pad rankings with -1") from error


def checked_ranking(labels: Any, values: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a ranking (n, k) and the value of each label; raise `DataError` if they do not fit each other."""
    ranking, numbers = as_rows(labels, "labels"), as_rows(values, name)
    are_numbers = ranking.dtype.kind in "iu" and numbers.dtype.kind in "biuf"
    if ranking.ndim != 2 or not are_numbers or numbers.shape != ranking.shape:
        got = f"{ranking.dtype} of shape {ranking.shape} and {numbers.dtype} of shape {numbers.shape}"
        has_objects = "O" in (ranking.dtype.kind, numbers.dtype.kind)
        remedy = "; convert objects, as scores.astype(np.float64) does" if has_objects else ""
        raise DataError(f"labels and {name}: must be integers and numbers of one shape (n, k), got {got}{remedy}")
    return ranking, numbers


def _top_labels(predicted: Matrix, shape: tuple[int, int], k: int) -> np.ndarray:
    """Return the top k labels of each row, int64 (n, k), padded with -1."""
    if isinstance(predicted, CSR) or hasattr(predicted, "tocsr"):
        _check_shape(predicted.shape, shape)
        csr = canonical(predicted.to_scipy() if isinstance(predicted, CSR) else predicted, "predicted")
        return top_of_rows(csr.indptr, csr.indices, csr.data, k)
    dense = as_rows(predicted, "predicted")
    if dense.ndim == 2 and dense.dtype.kind in "iu":
        return _top_of_ranking(dense, shape, k)
    if dense.ndim == 2 and dense.dtype.kind == "f":
        _check_shape(dense.shape, shape)
        rows = max(DENSE_CHUNK // max(shape[1], 1), 1)
        return np.concatenate([_top_of_dense(dense[i : i + rows], k) for i in range(0, len(dense), rows)])
    raise DataError(
        f"predicted: must be an integer ranking (n, k) or scores (n, L), got {dense.dtype} of shape {dense.shape}"
    )


def _check_shape(got: tuple[int, int], expected: tuple[int, int]) -> None:
    if tuple(got) != tuple(expected):
        hint = "; a ranking must be of integers" if got[0] == expected[0] else ""
        raise DataError(f"predicted: scores must have the shape of Y_true {tuple(expected)}, got {tuple(got)}{hint}")


def _top_of_ranking(ranking: np.ndarray, shape: tuple[int, int], k: int) -> np.ndarray:
    """Check a ranking and return its first k columns, padded with -1."""
    n_rows, n_labels = shape
    if len(ranking) != n_rows:
        raise DataError(f"predicted: must have the {n_rows} rows of Y_true, got {len(ranking)}")
    top = np.full((n_rows, k), -1, dtype=np.int64)
    given = ranking[:, :k]
    bad = np.argwhere((given < -1) | (given >= n_labels))
    if len(bad):
        row, rank = bad[0]
        raise DataError(f"predicted: row {row}: label must be in [-1, {n_labels}), got {given[row, rank]}")
    top[:, : given.shape[1]] = given
    ordered = np.sort(top, axis=1)
    twice = np.argwhere((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0))
    if len(twice):
        row, rank = twice[0]
        is_indicator = given.shape[1] > 2 and given.min() >= 0 and given.max() <= 1
        remedy = "; of an indicator matrix pass the scores, or predict_topk" if is_indicator else ""
        raise DataError(f"predicted: row {row}: a label may occur once, got {ordered[row, rank]} twice{remedy}")
    return top


def _top_of_dense(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the top k of dense scores (rows, L)."""
    _check_numbers(scores)
    candidates = scores > -np.inf
    if scores.shape[1] > k:  # all entries equal to the k-th best are kept, so that ties go to the smaller label
        candidates &= scores >= np.partition(scores, -k, axis=1)[:, -k, None]
    rows, labels = np.nonzero(candidates)
    indptr = pointers(np.bincount(rows, minlength=len(scores)))
    return top_of_rows(indptr, labels, scores[rows, labels], k)


def top_of_rows(indptr: np.ndarray, indices: np.ndarray, scores: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k best entries of each sparse row, padded with -1; ties keep their order."""
    _check_numbers(scores)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((-np.asarray(scores, dtype=np.float64), rows))  # stable: ties stay in the order of labels
    ranks = np.arange(len(rows)) - indptr[rows]
    first = ranks < k
    top = np.full((len(indptr) - 1, k), -1, dtype=np.int64)
    top[rows[first], ranks[first]] = indices[order[first]]
    return top


def _check_numbers(scores: np.ndarray) -> None:
    n_bad = np.count_nonzero(np.isnan(scores))
    if n_bad:
        raise DataError(f"predicted: scores must be numbers, got NaN in {n_bad} of {scores.size}")


def quotient(numerator: np.ndarray, denominator: np.ndarray) -> NDArray[np.float64]:
    """Return numerator / denominator with 0/0 = 0."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator != 0)
