"""Multi-label LIBSVM text, the format of the extreme classification repository: reader and writer.

    n_rows n_features n_labels        (header, optional; two integers name rows and features)
    3,17 0:0.5 9:1.25                 (labels, then index:value of each feature)
     4:1                              (a row without labels begins with a blank; so may a first `index:value`)

Features and labels count from zero; `zero_based=False` says that features, and `zero_based_labels=False` that labels
count from one. Values are rounded to float32, subnormals to zero. A blank line is a row with neither labels nor
features, except at the end of the file, where blank lines count only up to the number of rows in the header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from .csr import CSR, Dataset
from .libsvm_blocks import NO_ROWS, LibsvmBlocks
from .libsvm_parse import Options, RowBlock
from .libsvm_write import write_libsvm

if TYPE_CHECKING:
    import os

__all__ = ["LibsvmBlocks", "RowBlock", "read_blocks", "read_features", "read_libsvm", "write_libsvm"]


def read_libsvm(
    path: str | os.PathLike[str],
    *,
    zero_based: bool = True,
    zero_based_labels: bool = True,
    header: bool | str = "auto",
    duplicates: str = "error",
    n_features: int | None = None,
    n_labels: int | None = None,
    labels_required: bool = True,
    n_threads: int | None = None,
) -> Dataset:
    """Read a multi-label LIBSVM file; `.gz`, `.bz2` and `.xz` are known by their first bytes.

    The shape comes from the header, from `n_features` and `n_labels`, or else from the largest index. With
    `header="auto"` a first line of two or three plain integers is the header. A feature that comes twice in a row is
    an error, or added up with `duplicates="sum"`; a label twice counts once. A file without any label is an error, but
    not with `labels_required=False`, for rows to predict labels for. Raises `DataError` as
    `file:line: what was wrong, what was got`.
    """
    blocks = read_blocks(
        path,
        zero_based=zero_based,
        zero_based_labels=zero_based_labels,
        header=header,
        duplicates=duplicates,
        n_features=n_features,
        n_labels=n_labels,
        labels_required=labels_required,
        n_threads=n_threads,
    )
    X, Y = _concatenate(blocks)
    return Dataset(X, Y)


def read_features(
    path: str | os.PathLike[str],
    *,
    zero_based: bool = True,
    header: bool | str = "auto",
    duplicates: str = "error",
    n_features: int | None = None,
    n_threads: int | None = None,
) -> CSR:
    """Read a file whose rows hold `index:value` alone, such as each half of the split form of a data set.

    Options and errors are those of `read_libsvm`; the header is `rows columns`.
    """
    options = Options(zero_based, True, header, duplicates, labelled=False)
    return _concatenate(LibsvmBlocks(path, options, n_features, None, n_threads))[0]


def read_blocks(
    path: str | os.PathLike[str],
    *,
    zero_based: bool = True,
    zero_based_labels: bool = True,
    header: bool | str = "auto",
    duplicates: str = "error",
    n_features: int | None = None,
    n_labels: int | None = None,
    labels_required: bool = True,
    n_threads: int | None = None,
    stream: BinaryIO | None = None,
) -> LibsvmBlocks:
    """Return an iterator over the rows of a file, block by block, for data larger than memory.

    Options and errors are those of `read_libsvm`; what is wrong with the file is raised when its turn comes. With a
    `stream` the text is read from it, and `path` is its name in errors.
    """
    options = Options(zero_based, zero_based_labels, header, duplicates, labels_required=labels_required)
    return LibsvmBlocks(path, options, n_features, n_labels, n_threads, stream)


class _Growing:
    """An array that is appended to.

    It grows by an eighth: the system moves the pages of a large array, not its bytes, so memory matters more than
    the number of moves.
    """

    def __init__(self, dtype: Any) -> None:
        self._array = np.empty(1 << 16, dtype)
        self._size = 0

    def append(self, part: np.ndarray) -> None:
        """Append a copy of `part`."""
        end = self._size + len(part)
        if end > len(self._array):
            self._array.resize(end + end // 8, refcheck=False)
        self._array[self._size : end] = part
        self._size = end

    def done(self) -> np.ndarray:
        """Return the array, cut to size."""
        self._array.resize(self._size, refcheck=False)
        return self._array


def _concatenate(blocks: LibsvmBlocks) -> tuple[CSR, CSR]:
    """Return X and Y of all blocks."""
    X_indptr, X_indices, X_data = _Growing(np.int64), _Growing(np.int32), _Growing(np.float32)
    Y_indptr, Y_indices = _Growing(np.int64), _Growing(np.int32)
    X_indptr.append(NO_ROWS.X_indptr)
    Y_indptr.append(NO_ROWS.Y_indptr)
    n_entries, n_labels = 0, 0
    for rows in blocks:
        X_indptr.append(rows.X_indptr[1:] + n_entries)
        Y_indptr.append(rows.Y_indptr[1:] + n_labels)
        X_indices.append(rows.X_indices)
        X_data.append(rows.X_data)
        Y_indices.append(rows.Y_indices)
        n_entries += len(rows.X_indices)
        n_labels += len(rows.Y_indices)
    n_features, n_columns = blocks.shape
    X = CSR(X_indptr.done(), X_indices.done(), X_data.done(), n_features)
    Y = CSR(Y_indptr.done(), Y_indices.done(), np.ones(n_labels, np.float32), n_columns)
    return X, Y
