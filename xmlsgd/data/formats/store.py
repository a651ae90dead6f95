"""Stores: a data set as a folder of plain arrays, which are memory-mapped and so opened in about a millisecond.

    store.json                                   shape, numbers of entries
    X_indptr.npy  X_indices.npy  X_data.npy      int64 (n + 1,), int32 (nnz,), float32 (nnz,)
    Y_indptr.npy  Y_indices.npy                  int64 (n + 1,), int32 (label entries,)
    labels.txt                                   name of label l on line l, if names are known
    MANIFEST.json                                format, version, bytes and SHA-256 of the files above
    verified.json                                bytes and times of change of the files when all of them were verified

An entry of Y is a label of the row, so values of Y are not kept. `numpy.load` reads every array. A store is written
under a temporary name and then renamed, so that no error or crash leaves an incomplete one under the final name.
Indices and values are checked when a store is written. They are checked again, with the checksums, if files have
changed when it is opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...errors import DataError, ModelFileError, shorten
from ..csr import CSR, INT32_MAX, Dataset, check_csr, check_entries, check_pointers, row_spans
from ..files.atomic import atomic_folder, read_consistently
from ..files.folders import FolderArrays, read_folder
from ..files.manifest import STORE, compare_checksums, update_verified, write_manifest
from ..text import read_label_names, write_label_names
from .base import DESCRIPTION, LABEL_NAMES, SPLITS, FileRows, Format, check_free, is_store, write_splits

COUNTS = ("n_rows", "n_features", "n_labels", "nnz", "label_nnz")
WRITE_ENTRIES = 1 << 20  # written at once
MAX_ENTRIES = 1 << 48  # more than fit any disk; sizes in bytes stay below 2^63
DTYPES: dict[str, type] = {
    "X_indptr": np.int64,
    "X_indices": np.int32,
    "X_data": np.float32,
    "Y_indptr": np.int64,
    "Y_indices": np.int32,
}


def write_store(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as a store.

    Parameters
    ----------
    dataset : Dataset
        The rows.
    path : str or path
        The folder; an earlier store there is replaced. Entries of X that are zero are left out.

    Raises
    ------
    FileExistsError
        If something else has this name.
    DataError
        For rows that are not canonical, finite and of the types of `CSR`, and for label names that are equal or have
        line ends.
    """
    X, Y = dataset.X, dataset.Y
    check_csr(X, "X")
    check_csr(Y, "Y")
    blocks = (Dataset(X.span(*span), Y.span(*span)) for span in row_spans([X, Y], WRITE_ENTRIES))
    write_blocks(blocks, lambda: (dataset.n_features, dataset.n_labels), path, dataset.label_names)


def write_blocks(
    blocks: Iterable[Dataset],
    shape: Callable[[], tuple[int, int]],
    path: str | os.PathLike[str],
    label_names: Sequence[str] | None = None,
) -> None:
    """Write a store from blocks of rows, one in memory at a time.

    The rows are not checked, as those of `LibsvmBlocks` are sound. Entries of X that are zero are left out: they would
    count as features.
    shape : return (F, L); called after the last block. For the rest see `write_store`.
    """
    path = Path(path)
    with atomic_folder(path, check_free) as folder:
        counts = _write_arrays(blocks, folder)
        n_features, n_labels = shape()
        if label_names is not None:
            write_label_names(label_names, n_labels, folder / LABEL_NAMES)
        sizes = counts["X_indptr"] - 1, n_features, n_labels, counts["X_indices"], counts["Y_indices"]
        description = {**dict(zip(COUNTS, sizes, strict=True)), "label_names": label_names is not None}
        (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
        write_manifest(folder, STORE)


def open_store(path: str | os.PathLike[str]) -> Dataset:
    """Open a store; its arrays are read-only memory maps.

    The sizes of all files and every pointer are always checked. Every index, value and checksum are checked, too, which
    reads the whole store, if the size or time of change of a file is another than at its last check.

    Parameters
    ----------
    path : str or path
        The store.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        For a store that is damaged.
    """
    path = Path(path)
    try:
        dataset, seen = read_consistently(path, _open_checked)
    except ModelFileError as error:
        raise DataError(f"{error}; convert the data again") from error
    update_verified(path, seen)
    return dataset


def _open_checked(path: Path) -> tuple[Dataset, dict[str, Any]]:
    """Return the data set of a store, and the states of its files; all files were checked, now or earlier."""
    files = read_folder(path, verify=False, kind=STORE)
    store, saved = _checked_description(files.description, path), FolderArrays(files.arrays, path)
    n_rows, F, L, nnz, label_nnz = (store[name] for name in COUNTS)
    lengths = (n_rows + 1, nnz, nnz, n_rows + 1, label_nnz)
    X_indptr, X_indices, X_data, Y_indptr, Y_indices = (  # plain arrays, whose type Numba finds faster
        saved.array(name, kind, length).view(np.ndarray)
        for (name, kind), length in zip(DTYPES.items(), lengths, strict=True)
    )
    ones = np.broadcast_to(np.float32(1), label_nnz)  # one number in memory stands for all entries
    X, Y = CSR(X_indptr, X_indices, X_data, F), CSR(Y_indptr, Y_indices, ones, L)
    names = _LabelNames(path / LABEL_NAMES, L) if store["label_names"] else None
    for part, matrix in (("X", X), ("Y", Y)):
        check_pointers(matrix.indptr, matrix.nnz, f"{path}/{part}_indptr.npy")
        if not files.listed.all_verified:
            check_entries(matrix, (f"{path}/{part}_indices.npy", f"{path}/{part}_data.npy"))
    compare_checksums(path, files.listed)
    return Dataset(X, Y, names), files.listed.states


def _checked_description(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the content of `store.json`; raise `DataError` for one that `write_blocks` would not write."""
    file = path / DESCRIPTION
    for name in COUNTS:
        most = INT32_MAX if name in ("n_features", "n_labels") else MAX_ENTRIES
        if type(found.get(name)) is not int or not 0 <= found[name] <= most:
            raise DataError(f"{file}: {name} must be a count of at most {most}, got {shorten(found.get(name))}")
    if type(found.get("label_names")) is not bool:
        raise DataError(f"{file}: label_names must be true or false, got {shorten(found.get('label_names'))}")
    return found


class Store(Format):
    """Folders of arrays."""

    files = f"stores train/ and test/, or a store ({DESCRIPTION})"
    precedence = 0

    def recognizes(self, path: Path) -> bool:
        """Return whether a path is a store."""
        return is_store(path)

    def find(self, folder: Path) -> dict[str, Path]:
        """Return the stores `train` and `test`."""
        return {split: folder / split for split in SPLITS if is_store(folder / split)}

    def read(self, path: Path, options: dict[str, Any]) -> FileRows:
        """Open a store."""
        return FileRows(open_store(path), path)

    def write(self, path: Path, train: Dataset, test: Dataset | None, single: bool) -> None:
        """Write a store, or a folder with a store for each split."""
        if single:
            write_store(train, path)
            return
        write_splits(path, train, test, lambda folder, split, rows: write_store(rows, folder / split), with_names=False)


FORMAT = Store()


class _LabelNames(Sequence[str]):
    """The label names of a store, read on first use, so that a store of millions of labels opens quickly."""

    def __init__(self, path: Path, n_labels: int) -> None:
        self._path = path
        self._size = n_labels
        if not path.is_file():
            raise DataError(f"{path}: must be a file of {n_labels} label names, got none")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, label: Any) -> Any:
        return self._names[label]

    @cached_property
    def _names(self) -> list[str]:
        return read_label_names(self._path, self._size)


def _write_arrays(blocks: Iterable[Dataset], folder: Path) -> dict[str, int]:
    """Write the arrays of a store into `folder` and return the length of each."""
    sizes = dict.fromkeys(DTYPES, 0)
    with ExitStack() as stack:
        streams = {name: stack.enter_context((folder / f"{name}.npy").open("xb")) for name in DTYPES}

        def append(name: str, part: Any) -> None:
            streams[name].write(np.ascontiguousarray(part, dtype=DTYPES[name]).data)
            sizes[name] += len(part)

        _write_headers(streams, sizes)
        append("X_indptr", [0])
        append("Y_indptr", [0])
        for rows in blocks:
            X, Y = rows.X.without_zeros(), rows.Y
            append("X_indptr", X.indptr[1:] + sizes["X_indices"])
            append("Y_indptr", Y.indptr[1:] + sizes["Y_indices"])
            append("X_indices", X.indices)
            append("X_data", X.data)
            append("Y_indices", Y.indices)
        _write_headers(streams, sizes)  # again, as the lengths are known
    return sizes


def _write_headers(streams: Mapping[str, BinaryIO], sizes: Mapping[str, int]) -> None:
    """Write the header of each array, in which NumPy leaves room for any length."""
    for name, stream in streams.items():
        stream.seek(0)
        header = {"descr": np.dtype(DTYPES[name]).str, "fortran_order": False, "shape": (sizes[name],)}
        np.lib.format.write_array_header_1_0(stream, header)
