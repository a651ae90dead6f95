"""Sparse rows, `CSR`, and data sets of features and labels, `Dataset`.

Shape legend of the whole package
---------------------------------
n rows of a data set, B rows of a batch, F features, H hidden units, L labels.
X (B, F) and Y (B, L) are sparse; A (B, H) holds activations, Z (B, L) logits; W0 (F, H) is the input layer, W1 (L, H)
the output layer of a network with one hidden layer (with more, it is the last W); `dQ` is the gradient of Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, shorten

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import scipy.sparse as sp

MAX_UINT16, INT32_MAX = np.iinfo(np.uint16).max, np.iinfo(np.int32).max
COPIED_SHARE = 1 / 16  # share of all rows below which `take` copies rows by itself
CHECKED_ENTRIES = 1 << 16  # checked at once, so that they and temporary arrays fit the cache of a core


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CSR:
    """Compressed sparse rows, canonical: ascending indices, none twice in a row.

    Row i holds `indices[indptr[i]:indptr[i+1]]` and the `data` at the same positions. The arrays may be read-only
    memory maps; `to_scipy` returns a SciPy array over the same indices and data.

    Parameters
    ----------
    indptr : int64 array of shape (n_rows + 1,)
    indices : int32 array of shape (nnz,)
    data : float32 array of shape (nnz,)
    n_cols : int
    """

    indptr: np.ndarray  # int64 (n + 1,)
    indices: np.ndarray  # int32 (nnz,)
    data: np.ndarray  # float32 (nnz,)
    n_cols: int

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Return the number of stored entries."""
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (n_rows, n_cols)."""
        return self.n_rows, self.n_cols

    def __repr__(self) -> str:
        return f"<CSR: {self.n_rows} rows, {self.n_cols} columns, {self.nnz} entries>"

    def __getitem__(self, rows: Any) -> CSR:
        """Return the rows of a slice, a list of row indices or a mask; scikit-learn writes `X[rows, ...]`.

        Raises `DataError` for a single row, for columns and for rows out of range.
        """
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]
        if isinstance(rows, slice):
            first, last, step = rows.indices(self.n_rows)
            return self.span(first, max(first, last)) if step == 1 else self.take(np.arange(first, last, step))
        chosen = np.asarray(rows)
        if chosen.ndim != 1 or (chosen.dtype.kind not in "iub" and len(chosen)):
            hint = "for single rows and columns use to_scipy()"
            raise DataError(f"rows: must be a slice, a list of numbers or a mask, got {shorten(rows)}; {hint}")
        try:
            return self.take(np.arange(self.n_rows)[chosen if len(chosen) else slice(0)])
        except IndexError as error:
            raise DataError(f"rows: must be among the {self.n_rows} rows, got {error}") from error

    @classmethod
    def from_scipy(cls, matrix: Any, name: str = "X") -> CSR:
        """Return the canonical CSR of a scipy sparse matrix or array, which is never changed.

        Entries at the same position are added up, as in scipy. Raises `DataError` for a broken structure, values that
        are NaN or infinite, and values outside float32.
        """
        csr = canonical(matrix, name)
        data = csr.data
        if data.dtype != np.float32:
            with np.errstate(over="ignore"):
                data = np.asarray(data, dtype=np.float32)
        finite = np.isfinite(data)
        if not finite.all():
            entry = int(finite.argmin())
            got = not_finite(csr.data[entry], csr.indices[entry])
            raise DataError(f"{name}: row {row_of(csr.indptr, entry)}: values must be finite float32, {got}")
        return cls(np.asarray(csr.indptr, dtype=np.int64), np.asarray(csr.indices, dtype=np.int32), data, csr.shape[1])

    def to_scipy(self) -> sp.csr_array:
        """Return a scipy CSR array over the same indices and data.

        SciPy has one type for both index arrays, and would copy the indices as int64; LinearSVC takes int32 alone.
        """
        import scipy.sparse as sp

        indptr = self.indptr.astype(np.int32) if self.nnz <= INT32_MAX else self.indptr
        return sp.csr_array((self.data, self.indices, indptr), shape=self.shape, copy=False)

    def row(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices and the data of row `i`."""
        span = slice(self.indptr[i], self.indptr[i + 1])
        return self.indices[span], self.data[span]

    def columns_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the columns of the entries of the given rows, one row after another, int32."""
        return self.indices[self.positions_of(rows)]

    def positions_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the positions of the entries of the given rows, one row after another."""
        starts, lengths = self.indptr[rows], self.indptr[rows + 1] - self.indptr[rows]
        ends = np.cumsum(lengths)
        return np.arange(ends[-1] if len(rows) else 0) + np.repeat(starts - ends + lengths, lengths)

    def span(self, first: int, last: int) -> CSR:
        """Return the rows from `first` to before `last`; their entries are views."""
        start = self.indptr[first]
        entries = slice(start, self.indptr[last])
        return CSR(self.indptr[first : last + 1] - start, self.indices[entries], self.data[entries], self.n_cols)

    def column_counts(self) -> np.ndarray:
        """Return the number of entries of each column, int64 (n_cols,)."""
        return np.bincount(self.indices, minlength=self.n_cols)

    def entry_keys(self) -> np.ndarray:
        """Return a number for each pair of row and column that has an entry, row * n_cols + column, int64 (nnz,)."""
        return np.repeat(np.arange(self.n_rows), np.diff(self.indptr)) * np.int64(self.n_cols) + self.indices

    def has(self, columns: np.ndarray) -> np.ndarray:
        """Return whether row i has an entry in `columns[i, j]`, bool; columns : int (n_rows, m), -1 for none."""
        keys = self.entry_keys()  # ascending, so that a binary search finds a pair
        if not len(keys):
            return np.zeros(columns.shape, np.bool_)
        wanted = np.arange(self.n_rows)[:, None] * np.int64(self.n_cols) + columns
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.asarray((keys[found] == wanted) & (columns >= 0) & (columns < self.n_cols))

    def where(self, kept: np.ndarray) -> CSR:
        """Return the rows with only those entries for which `kept`, bool (nnz,), is true."""
        return CSR(pointers(kept)[self.indptr], self.indices[kept], self.data[kept], self.n_cols)

    def without_zeros(self) -> CSR:
        """Return the rows without entries of zero; if there are none, these rows themselves."""
        return self if self.data.all() else self.where(self.data != 0)

    def take(self, rows: np.ndarray) -> CSR:
        """Return a copy of the given rows, in the given order."""
        if len(rows) < COPIED_SHARE * self.n_rows:  # scipy reads the whole matrix, which would take longer
            entries, indptr = self.positions_of(rows), pointers(self.indptr[rows + 1] - self.indptr[rows])
            return CSR(indptr, self.indices[entries].astype(np.int32, copy=False), self.data[entries], self.n_cols)
        taken = self.to_scipy()[rows]
        indptr, indices = taken.indptr.astype(np.int64, copy=False), taken.indices.astype(np.int32, copy=False)
        return CSR(indptr, indices, taken.data, self.n_cols)


def indicator(rows: Sequence[Collection[Any]], column: Mapping[Any, int]) -> CSR:
    """Return rows of ones in the columns of their names; rows : distinct names of each row, column : of each name."""
    indptr = pointers([len(row) for row in rows])
    columns = (each for row in rows for each in sorted(column[name] for name in row))
    indices = np.fromiter(columns, dtype=np.int32, count=int(indptr[-1]))
    return CSR(indptr, indices, np.ones(len(indices), np.float32), len(column))


def row_spans(matrices: Sequence[CSR], entries: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of consecutive rows, one or more, that have at most `entries` entries in each matrix."""
    start, n_rows = 0, matrices[0].n_rows
    while start < n_rows:
        ends = [int(np.searchsorted(M.indptr, M.indptr[start] + entries, side="right")) - 1 for M in matrices]
        stop = min(max(min(ends), start + 1), start + entries)
        yield start, stop
        start = stop


def stacked(parts: Sequence[CSR], n_cols: int | None = None) -> CSR:
    """Return the rows of all parts, one after another, as a copy; n_cols : by default that of the first part."""
    indptr = pointers(np.concatenate([np.diff(part.indptr) for part in parts]))
    indices, data = (np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "data"))
    return CSR(indptr, indices, data, parts[0].n_cols if n_cols is None else n_cols)


def index_type(*sizes: int) -> type:
    """Return the integer type in which indices below each of these sizes are saved."""
    return np.uint16 if max(sizes) <= MAX_UINT16 else np.int32


def pointer_type(n_entries: int) -> type:
    """Return the integer type in which pointers to this many entries are saved."""
    return np.int32 if n_entries <= INT32_MAX else np.int64


def pointers(counts: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return the indptr of rows with these numbers of entries, int64 (n + 1,)."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def canonical(matrix: Any, name: str) -> Any:
    """Return a scipy sparse matrix, which is not changed, as CSR with ascending indices, none twice in a row.

    The flags of the matrix are ignored: they may be out of date, if somebody has changed its arrays.
    """
    if matrix.format in ("csc", "bsr"):  # scipy follows their indices, unchecked
        check_structure(matrix, name)
    csr = matrix.tocsr()
    check_structure(csr, name)
    if not _is_canonical(csr.indptr, csr.indices):
        csr = csr.copy() if csr is matrix else csr
        csr.has_canonical_format = csr.has_sorted_indices = False
        csr.sum_duplicates()
    return csr


def _is_canonical(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Return whether indices ascend in each row, and all of them belong to a row."""
    if indptr[-1] != len(indices):
        return False
    if len(indices) <= CHECKED_ENTRIES and (indices[1:] > indices[:-1]).all():  # for one row, saves 12 microseconds
        return True
    return all(_rises(indptr, indices, start).all() for start in range(0, len(indices), CHECKED_ENTRIES))


def _rises(indptr: np.ndarray, indices: np.ndarray, start: int) -> np.ndarray:
    """Return for up to `CHECKED_ENTRIES` indices from `start` on whether the next is larger or begins a row, bool."""
    piece = indices[start : start + CHECKED_ENTRIES + 1]  # one more, to compare across the piece's end
    rises: np.ndarray = piece[1:] > piece[:-1]
    first, stop = np.searchsorted(indptr, (start + 1, start + len(piece)))
    rises[indptr[first:stop] - (start + 1)] = True
    return rises


def from_dense(matrix: np.ndarray) -> sp.csr_array:
    """Return a dense matrix of numbers as a sparse one, even of a type that scipy does not know, such as float16."""
    import scipy.sparse as sp

    native = np.float32 if matrix.dtype == np.float16 else matrix.dtype.newbyteorder("=")
    return sp.csr_array(matrix.astype(native, copy=False))


def check_structure(matrix: Any, name: str) -> None:
    """Raise `DataError` unless a kernel can follow the indptr and indices of a scipy CSR, CSC or BSR matrix safely."""
    indptr, indices = matrix.indptr, matrix.indices
    if matrix.ndim != 2:
        raise DataError(f"{name}: must have 2 dimensions, got shape {matrix.shape}")
    if matrix.shape[1] > INT32_MAX:
        raise DataError(f"{name}: at most {INT32_MAX} columns fit int32 indices, got {matrix.shape[1]}")
    n_lines, n_places = matrix.shape if matrix.format != "csc" else matrix.shape[::-1]
    if matrix.format == "bsr":
        n_lines, n_places = n_lines // matrix.blocksize[0], n_places // matrix.blocksize[1]
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise DataError(f"{name}: indptr and indices must be integers, got {indptr.dtype} and {indices.dtype}")
    falls = indptr[1:] < indptr[:-1]  # differences would wrap around
    if len(indptr) != n_lines + 1 or indptr[0] != 0 or indptr[-1] > len(indices) or falls.any():
        lines = "columns" if matrix.format == "csc" else "rows"
        raise DataError(f"{name}: indptr must rise from 0 to nnz = {len(indices)} over {n_lines} {lines}")
    if matrix.data.dtype.kind not in "biuf":
        raise DataError(f"{name}: must hold real numbers, got {matrix.data.dtype}")
    if len(matrix.data) != len(indices):
        raise DataError(f"{name}: data and indices must be of one length, got {len(matrix.data)} and {len(indices)}")
    if len(indices) and (indices.min() < 0 or indices.max() >= n_places):
        raise DataError(f"{name}: indices must be in [0, {n_places}), got {int(indices.min())} to {int(indices.max())}")


def check_csr(matrix: CSR, name: str) -> None:
    """Raise `DataError` unless a CSR is canonical and finite; reads memory maps once, piece by piece."""
    indptr, indices = matrix.indptr, matrix.indices
    if not all(isinstance(array, np.ndarray) and array.ndim == 1 for array in (indptr, indices, matrix.data)):
        raise DataError(f"{name}: must be of three 1-D arrays, got {shorten(indptr)}, {shorten(indices)}")
    types = [str(array.dtype) for array in (indptr, indices, matrix.data)]
    if types != ["int64", "int32", "float32"]:
        raise DataError(f"{name}: must be of int64, int32 and float32 arrays, got {', '.join(types)}")
    if isinstance(matrix.n_cols, bool) or not isinstance(matrix.n_cols, int | np.integer):
        raise DataError(f"{name}: n_cols must be an integer, got {shorten(matrix.n_cols)}")
    if len(indptr) == 0 or len(matrix.data) != len(indices):
        got = f"{len(indptr)}, {len(indices)} and {len(matrix.data)}"
        raise DataError(f"{name}: must be of n + 1 pointers and as many indices as values, got {got}")
    check_pointers(indptr, matrix.nnz, f"{name}: indptr")
    check_entries(matrix, (f"{name}: indices", name))


def check_pointers(indptr: np.ndarray, nnz: int, name: str) -> None:
    """Raise `DataError` unless `indptr` rises from 0 to `nnz`; else a kernel would read outside of its arrays."""
    first, last = int(indptr[0]), int(indptr[-1])
    if (first, last) != (0, nnz):
        raise DataError(f"{name}: must lead from 0 to {nnz}, got {first} and {last}")
    for start in range(0, len(indptr) - 1, CHECKED_ENTRIES):
        piece = indptr[start : start + CHECKED_ENTRIES + 1]  # one more, to compare across the piece's end
        falls = piece[1:] < piece[:-1]
        if falls.any():
            row = start + int(falls.argmax())
            raise DataError(f"{name}: must rise, got {indptr[row + 1]} after {indptr[row]} at row {row}")


def check_entries(matrix: CSR, names: tuple[str, str]) -> None:
    """Raise `DataError` unless indices are canonical and values finite; reads every entry once.

    The pointers must have been checked. names : of the indices and of the data, for errors.
    """
    indptr, indices, n_cols = matrix.indptr, matrix.indices, matrix.n_cols
    for start in range(0, matrix.nnz, CHECKED_ENTRIES):
        piece = indices[start : start + CHECKED_ENTRIES]
        if piece.min() < 0 or piece.max() >= n_cols:
            entry = start + int(((piece < 0) | (piece >= n_cols)).argmax())
            row = row_of(indptr, entry)
            raise DataError(f"{names[0]}: must be in [0, {n_cols}), got {indices[entry]} in row {row}")
        rises = _rises(indptr, indices, start)
        if not rises.all():
            row = row_of(indptr, start + 1 + int(rises.argmin()))
            raise DataError(f"{names[0]}: must rise within a row, but row {row} does not")
        finite = np.isfinite(matrix.data[start : start + CHECKED_ENTRIES])
        if not finite.all():
            entry = start + int(finite.argmin())
            got, row = matrix.data[entry], row_of(indptr, entry)
            raise DataError(f"{names[1]}: values must be finite, got {got} in row {row}")


def not_finite(value: Any, column: int) -> str:
    """Return the end of an error about a value that is not finite: what and where it is, and what to do."""
    remedy = "; give missing values a number, as by SimpleImputer of scikit-learn" if value != value else ""
    return f"got {value} in column {column}{remedy}"


def row_of(indptr: np.ndarray, entry: int) -> int:
    """Return the row of an entry."""
    return int(np.searchsorted(indptr, entry, side="right")) - 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dataset:
    """Features and labels of the same rows.

    Parameters
    ----------
    X : CSR of shape (n, F)
        Features.
    Y : CSR of shape (n, L)
        Labels: an entry is a label of the row, whatever its value.
    label_names : sequence of str, optional
        `label_names[l]` is the name of label l.

    Raises
    ------
    DataError
        If X and Y differ in their number of rows.
    """

    X: CSR
    Y: CSR
    label_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Check that both parts have the same number of rows."""
        if self.X.n_rows != self.Y.n_rows:
            raise DataError(f"X and Y must have the same number of rows, got {self.X.n_rows} and {self.Y.n_rows}")

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return self.X.n_rows

    def __repr__(self) -> str:
        names = "" if self.label_names is None else ", with label names"
        return f"<Dataset: {self.n_rows} rows, {self.n_features} features, {self.n_labels} labels{names}>"

    def take(self, rows: np.ndarray) -> Dataset:
        """Return a copy of the given rows, in the given order."""
        return Dataset(self.X.take(rows), self.Y.take(rows), self.label_names)

    @property
    def n_features(self) -> int:
        """Return F."""
        return self.X.n_cols

    @property
    def n_labels(self) -> int:
        """Return L."""
        return self.Y.n_cols
