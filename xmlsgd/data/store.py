"""Stores: a data set as a folder of plain arrays that are mapped into memory, opened in about a millisecond.

    store.json                                   format, version, shape, numbers of entries
    X_indptr.npy  X_indices.npy  X_data.npy      int64 (n + 1,), int32 (nnz,), float32 (nnz,)
    Y_indptr.npy  Y_indices.npy                  int64 (n + 1,), int32 (label entries,)
    labels.txt                                   name of label l on line l, where names are known
    checked.json                                 bytes and times of change of the arrays when all of them was checked

An entry of Y is a label that the row has, so its values are not kept. `numpy.load` reads every array. A store is made
beside its final name and renamed, so that neither an error nor a crash leaves half of one under that name. Indices and
values are checked when a store is written, and again when it is opened with arrays that have changed since.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..errors import DataError, shorten
from .csr import CSR, INT32_MAX, Dataset, check_entries, check_pointers
from .files import (
    checked_states,
    note_checked,
    note_checked_again,
    open_regular,
    read_unreplaced,
    restore,
    state_of,
    whole_folder,
)
from .store_arrays import DTYPES, open_array, write_arrays
from .text import read_raw_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .libsvm_parse import RowBlock

FORMAT, VERSION = "xmlsgd-store", 1
DESCRIPTION, LABEL_NAMES = "store.json", "labels.txt"
COUNTS = ("n_rows", "n_features", "n_labels", "nnz", "label_nnz")
MAX_DESCRIPTION_BYTES = 1 << 16
MAX_ENTRIES = 1 << 48  # far above any disk, and small enough that sizes in bytes stay below 2^63
NO_NAME = re.compile("[\0\r\n\ufeff\ud800-\udfff]")  # what a line of UTF-8 cannot hold, or a reader would drop
BLOCK_ENTRIES = 1 << 20  # entries written at once: bounds memory


def write_store(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write `dataset` as the store `path`; an earlier store there is replaced.

    Raises `FileExistsError` where something else has this name, `DataError` for rows that are not canonical or not
    finite, and for label names that are not one line each.
    """
    for part, matrix in (("X", dataset.X), ("Y", dataset.Y)):
        check_pointers(matrix.indptr, matrix.nnz, f"{part}: indptr")
        check_entries(matrix, (f"{part}: indices", part))
    rows = row_blocks(dataset)
    write_blocks(rows, lambda: (dataset.n_features, dataset.n_labels), path, dataset.label_names)


def write_blocks(
    blocks: Iterable[Sequence[np.ndarray]],
    shape: Callable[[], tuple[int, int]],
    path: str | os.PathLike[str],
    label_names: Sequence[str] | None = None,
    source: dict[str, Any] | None = None,
) -> None:
    """Write a store from blocks of rows (X_indptr, X_indices, X_data, Y_indptr, Y_indices), one in memory at a time.

    The pointers of each block start from zero, and its rows are taken to be sound: those of `read_blocks` are. `shape`
    tells (F, L) once the last block was taken. `source` is kept in `store.json`. For the rest see `write_store`.
    """
    path = Path(path)
    with replacing(path) as folder:
        counts = write_arrays(blocks, folder)
        n_features, n_labels = shape()
        if label_names is not None:
            write_label_names(label_names, n_labels, folder / LABEL_NAMES)
        description = {
            "format": FORMAT,
            "version": VERSION,
            "n_rows": counts["X_indptr"] - 1,
            "n_features": n_features,
            "n_labels": n_labels,
            "nnz": counts["X_indices"],
            "label_nnz": counts["Y_indices"],
            "label_names": label_names is not None,
            "source": source,
        }
        (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
        note_checked(folder, _states(folder))


def is_store(path: str | os.PathLike[str]) -> bool:
    """Say whether `path` is a folder that looks like a store; it may be damaged."""
    restore(Path(path))
    return (Path(path) / DESCRIPTION).is_file()


def open_store(path: str | os.PathLike[str], check: bool = False) -> Dataset:
    """Return the data set of a store; its arrays are read-only memory maps.

    The sizes of all files and every pointer are always checked. Every index and value is where the arrays are not those
    that were checked before, by their sizes and times of change, and with `check`; this reads the whole store once.
    Raises `DataError` for a store that is damaged.
    """
    path = Path(path)
    dataset, seen = read_unreplaced(path, partial(_open_checked, check=check))
    note_checked_again(path, seen)
    return dataset


def _open_checked(path: Path, check: bool) -> tuple[Dataset, dict[str, Any]]:
    """Return the data set of a store, and the state of its arrays, all of which was checked now or before."""
    store = read_description(path)
    F, L = store["n_features"], store["n_labels"]
    sizes = {"X_indptr": store["n_rows"] + 1, "X_indices": store["nnz"], "X_data": store["nnz"]}
    sizes |= {"Y_indptr": store["n_rows"] + 1, "Y_indices": store["label_nnz"]}
    arrays = {name: open_array(path / f"{name}.npy", DTYPES[name], size) for name, size in sizes.items()}
    ones = np.broadcast_to(np.float32(1), store["label_nnz"])  # one number for all entries, in no memory
    X = CSR(arrays["X_indptr"], arrays["X_indices"], arrays["X_data"], F)
    Y = CSR(arrays["Y_indptr"], arrays["Y_indices"], ones, L)
    seen = _states(path)
    check = check or seen != checked_states(path)
    for part, matrix in (("X", X), ("Y", Y)):
        check_pointers(matrix.indptr, matrix.nnz, f"{path}/{part}_indptr.npy")
        if check:
            check_entries(matrix, (f"{path}/{part}_indices.npy", f"{path}/{part}_data.npy"))
    return Dataset(X, Y, _LabelNames(path / LABEL_NAMES, L) if store["label_names"] else None), seen


def row_blocks(dataset: Dataset, entries: int = BLOCK_ENTRIES) -> Iterator[RowBlock]:
    """Yield a data set in blocks of rows with about `entries` entries of X and as many of Y, or a single row."""
    from .libsvm_parse import RowBlock

    X, Y = dataset.X, dataset.Y
    start = 0
    while start < dataset.n_rows:
        ends = [int(np.searchsorted(M.indptr, M.indptr[start] + entries, side="right")) - 1 for M in (X, Y)]
        stop = min(max(min(ends), start + 1), start + entries)
        x, y = (slice(int(M.indptr[start]), int(M.indptr[stop])) for M in (X, Y))
        pointers = [M.indptr[start : stop + 1] - M.indptr[start] for M in (X, Y)]
        yield RowBlock(pointers[0], X.indices[x], X.data[x], pointers[1], Y.indices[y])
        start = stop


def read_label_names(path: str | os.PathLike[str], n_labels: int) -> list[str]:
    """Return the names of `n_labels` labels, one a line; raise `DataError` for more or fewer of them."""
    names = read_raw_text(Path(path)).texts
    if len(names) != n_labels:
        raise DataError(f"{path}: must have a line for each of {n_labels} labels, got {len(names)}")
    return names


def write_label_names(names: Sequence[str], n_labels: int, path: Path) -> None:
    """Write a line for each label; raise `DataError` where that would not be read back."""
    if len(names) != n_labels:
        raise DataError(f"label names must be one for each of {n_labels} labels, got {len(names)}")
    for label, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or NO_NAME.search(name):
            raise DataError(f"label {label}: its name must be a line of text that is not blank, got {shorten(name)}")
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8", newline="\n")


def check_free(path: Path) -> None:
    """Raise `FileExistsError` where `path` is anything but a store, a pair of them, an empty folder, or nothing."""
    if path.exists() and not is_store(path) and not (path.is_dir() and all(map(_is_part, path.iterdir()))):
        raise FileExistsError(f"{path}: exists and is not a store; remove it or choose another name")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a new folder beside `path` that takes its name once it is complete and on the disk.

    An earlier store or pair of stores of that name goes away then. Raises `FileExistsError` where anything else but an
    empty folder has the name.
    """
    check_free(path)
    with whole_folder(path) as folder:
        yield folder
        check_free(path)  # writing may have taken hours


def read_description(path: Path) -> dict[str, Any]:
    """Return the checked content of `store.json`."""
    file = path / DESCRIPTION
    try:
        with open_regular(file) as stream:
            found = json.loads(stream.read(MAX_DESCRIPTION_BYTES))
    except FileNotFoundError as error:
        raise DataError(f"{path}: must be a store, but {DESCRIPTION} is missing") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: must be readable JSON, got {shorten(str(error))}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f"{file}: must be of format {FORMAT!r}, got {shorten(found)}")
    if found.get("version") != VERSION:
        raise DataError(f"{file}: must be of version {VERSION}, got {shorten(found.get('version'))}")
    for name in COUNTS:
        if type(found.get(name)) is not int or not 0 <= found[name] < MAX_ENTRIES:
            raise DataError(f"{file}: {name} must be a count, got {shorten(found.get(name))}")
    for name in ("n_features", "n_labels"):
        if found[name] > INT32_MAX:
            raise DataError(f"{file}: {name} must be at most {INT32_MAX}, got {found[name]}")
    if type(found.get("label_names")) is not bool:
        raise DataError(f"{file}: label_names must be true or false, got {shorten(found.get('label_names'))}")
    return found


def _is_part(path: Path) -> bool:
    """Say whether `path` is the store of the train or test part of a data set, as `convert` writes them."""
    return path.name in ("train", "test") and is_store(path)


def _states(path: Path) -> dict[str, dict[str, int]]:
    """Return what changes when an array of a store is written again."""
    return {name: state_of(path / f"{name}.npy") for name in DTYPES}


class _LabelNames(Sequence[str]):
    """The label names of a store, read at the first look: opening stays quick with millions of labels."""

    def __init__(self, path: Path, n_labels: int) -> None:
        self._path = path
        self._size = n_labels
        self._names: list[str] | None = None
        if not path.is_file():
            raise DataError(f"{path}: must be a file of {n_labels} label names, got none")

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, label: int) -> str: ...
    @overload
    def __getitem__(self, label: slice) -> list[str]: ...
    def __getitem__(self, label: int | slice) -> str | list[str]:
        if self._names is None:
            self._names = read_label_names(self._path, self._size)
        return self._names[label]
