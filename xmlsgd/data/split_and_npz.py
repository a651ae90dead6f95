"""Data sets whose X and Y lie in two files: text of the split form, and scipy's npz as PECOS names it.

    trn_X_Xf.txt  trn_X_Y.txt  tst_X_Xf.txt  tst_X_Y.txt    header `rows columns`, then `index:value index:value`
    X.trn.npz     Y.trn.npz    X.tst.npz     Y.tst.npz      `scipy.sparse.save_npz`

An entry of Y is a label that the row has if its value is not zero; the value itself is dropped. Label names, where they
are known, are the lines of `labels.txt` beside the files.
"""

from __future__ import annotations

import itertools
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, shorten
from .csr import CSR, Dataset
from .libsvm import read_features
from .store import LABEL_NAMES, replacing, write_label_names

if TYPE_CHECKING:
    from collections.abc import Callable

SPLIT_NAMES = {"train": ("trn_X_Xf.txt", "trn_X_Y.txt"), "test": ("tst_X_Xf.txt", "tst_X_Y.txt")}
NPZ_NAMES = {"train": ("X.trn.npz", "Y.trn.npz"), "test": ("X.tst.npz", "Y.tst.npz")}
FILTERS = "*filter_labels*.txt"
FORMAT_ROWS = 1 << 12  # rows turned into text at a time


def read_split(X_path: Path, Y_path: Path, **options: Any) -> Dataset:
    """Read a pair of text files; `options` are those of `read_libsvm`.

    Raises `DataError` for text that `read_libsvm` would not take, and for parts of different length.
    """
    options.pop("labels_required", None)  # the file of Y has some
    labels: dict[str, Any] = {
        "zero_based": options.pop("zero_based_labels", True),
        "n_features": options.pop("n_labels", None),
        "duplicates": "sum",  # a label twice counts once
        **{name: options[name] for name in ("header", "n_threads") if name in options},
    }
    for filters in sorted(X_path.parent.glob(FILTERS)):
        warnings.warn(f"{filters}: not read; the labels that it excludes are ranked like others", stacklevel=4)
    X = read_features(X_path, **options)
    return _joined(X, read_features(Y_path, **labels), X_path, Y_path)


def read_npz(X_path: Path, Y_path: Path) -> Dataset:
    """Read a pair of scipy's sparse matrices.

    Raises `DataError` for files of something else, for broken structures, and for parts of different length.
    """
    return _joined(_load_npz(X_path), _load_npz(Y_path), X_path, Y_path)


def write_split(path: str | os.PathLike[str], train: Dataset, test: Dataset | None = None) -> None:
    """Write the new folder `path` in the split form; values have the fewest digits that name their float32.

    The folder appears when it is complete. Raises `FileExistsError` where there is one that is not empty, `DataError`
    for a matrix without entries or with values that are not finite: no reader could get it back.
    """
    _write_folder(Path(path), SPLIT_NAMES, _write_rows, train, test)


def write_npz(path: str | os.PathLike[str], train: Dataset, test: Dataset | None = None) -> None:
    """Write the new folder `path` with scipy's sparse matrices, not compressed.

    The folder appears when it is complete. Raises `FileExistsError` where there is one that is not empty.
    """
    _write_folder(Path(path), NPZ_NAMES, _save_npz, train, test)


def _write_folder(
    path: Path,
    names: dict[str, tuple[str, str]],
    write: Callable[[CSR, Path], None],
    train: Dataset,
    test: Dataset | None,
) -> None:
    """Write both matrices of both parts with `write`, and the label names of the train part."""
    with replacing(path) as folder:
        for part, dataset in (("train", train), ("test", test)):
            if dataset is not None:
                for matrix, name in zip((dataset.X, dataset.Y), names[part], strict=True):
                    write(matrix, folder / name)
        if train.label_names is not None:
            write_label_names(train.label_names, train.n_labels, folder / LABEL_NAMES)


def _write_rows(matrix: CSR, path: Path) -> None:
    """Write a matrix as text; raise `DataError` for what would not be read back."""
    if not matrix.nnz or not np.isfinite(matrix.data).all():
        raise DataError(f"{path.name}: must have entries, all finite, got {matrix.nnz} entries")
    with path.open("xb") as stream:
        stream.write(b"%d %d\n" % matrix.shape)
        for start in range(0, matrix.n_rows, FORMAT_ROWS):
            ends = matrix.indptr[start : start + FORMAT_ROWS + 1]
            span = slice(int(ends[0]), int(ends[-1]))
            # NumPy prints the shortest decimal of a float32, Python would print that of the float64 of equal value.
            values = matrix.data[span].astype("S32").tolist()
            pairs = list(map(b"%d:%b".__mod__, zip(matrix.indices[span].tolist(), values, strict=True)))
            stops = (ends - ends[0]).tolist()
            lines = (b" ".join(pairs[a:b]) + b"\n" for a, b in itertools.pairwise(stops))
            stream.write(b"".join(lines))


def _save_npz(matrix: CSR, path: Path) -> None:
    """Write a matrix as scipy does."""
    import scipy.sparse as sp

    # A matrix, not an array: readers with an older scipy know no other.
    arrays = (matrix.data, matrix.indices, matrix.indptr)
    sp.save_npz(path, sp.csr_matrix(arrays, shape=matrix.shape, copy=False), compressed=False)


def _load_npz(path: Path) -> CSR:
    """Return the canonical matrix of a file that `scipy.sparse.save_npz` wrote; nothing in it is unpickled."""
    import scipy.sparse as sp

    try:
        with path.open("rb") as stream:  # ours: NumPy does not close what it finds to be damaged
            return CSR.from_scipy(sp.load_npz(stream), str(path))
    except DataError:
        raise
    except MemoryError as error:  # a few bytes may claim any shape
        raise DataError(f"{path}: must fit memory, got {shorten(str(error), 100)}") from error
    except Exception as error:  # scipy checks little of what a file claims: anything may be raised
        raise DataError(f"{path}: must be a sparse matrix saved by scipy, got {shorten(str(error), 100)}") from error


def _joined(X: CSR, Y: CSR, X_path: Path, Y_path: Path) -> Dataset:
    """Return the data set of both parts, entries of Y with value zero dropped."""
    if X.n_rows != Y.n_rows:
        raise DataError(f"{Y_path}: must have the {X.n_rows} rows of {X_path.name}, got {Y.n_rows}")
    if not Y.data.all():
        Y = Y.where(Y.data != 0)
    return Dataset(X, replace(Y, data=np.ones(Y.nnz, np.float32)))
