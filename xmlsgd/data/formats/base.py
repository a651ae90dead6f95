"""The base class of file formats of data sets, and functions that several formats share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import DataError
from ..csr import CSR, Dataset
from ..files.atomic import atomic_folder
from ..files.manifest import STORE
from ..parser.parse import Options

SPLITS = ("train", "test")
WITHOUT_EFFECT = ("n_threads", "labels_required")  # options that do not change the rows
DESCRIPTION = STORE.description  # a folder with this file is a store
LABEL_NAMES = "labels.txt"  # the name of label l on line l


@dataclass(frozen=True)
class FileRows:
    """Rows, the file they came from, and whether it declared its numbers of (features, labels)."""

    dataset: Dataset
    path: Path
    declared: tuple[bool, bool] = (True, True)


class Format(ABC):
    """A file format of data sets.

    Each module of this folder defines one as `FORMAT`; the module's name is the name of the format.

    files : the names of its files in a folder, for error messages.
    precedence : if a folder holds files of several formats, the one with the lowest number is read.
    is_text : whether `read` takes the options of `read_libsvm`; otherwise they are refused.
    """

    files: ClassVar[str]
    precedence: ClassVar[int] = 9
    is_text: ClassVar[bool] = False

    @abstractmethod
    def recognizes(self, path: Path) -> bool:
        """Return whether a file or folder holds one set of rows in this format, by its name."""

    @abstractmethod
    def find(self, folder: Path) -> dict[str, Path]:
        """Return the paths, for `read`, of the "train" and "test" splits that a folder has."""

    @abstractmethod
    def read(self, path: Path, options: dict[str, Any]) -> FileRows:
        """Read one set of rows; `options` are those of `load_file`, which only text formats use."""

    def write(self, path: Path, train: Dataset, test: Dataset | None, single: bool) -> None:
        """Write a data set to `path`, complete or not at all; by default, raise `DataError`, as for a read-only format.

        single : whether the rows are one set without splits, for which a single file is enough.
        """
        name = type(self).__module__.rpartition(".")[2]
        raise DataError(f"{path}: cannot be written as {name}, which is only read; choose another format")

    def load(self, path: Path, options: dict[str, Any]) -> FileRows:
        """Read one set of rows; raise `DataError` for options of text if the format is no text."""
        if not self.is_text:
            refuse_options(options, path)
        return self.read(path, options)


class PairFormat(Format):
    """A format with X and Y in two files, which have fixed names.

    names : the files of X and Y of each split. without_labels : a remedy, how to write rows that have no labels.
    """

    names: ClassVar[dict[str, tuple[str, str]]]
    without_labels: ClassVar[str] = ""

    def recognizes(self, path: Path) -> bool:
        """Return whether a path has the name of X or Y."""
        return not path.is_dir() and any(path.name in pair for pair in self.names.values())

    def find(self, folder: Path) -> dict[str, Path]:
        """Return the file of X of each split that has at least one of its files."""
        found = {split: [folder / name for name in pair] for split, pair in self.names.items()}
        return {split: pair[0] for split, pair in found.items() if any(file.is_file() for file in pair)}

    def pair_of(self, path: Path) -> tuple[Path, Path]:
        """Return the files of X and Y; path : one of them. Raises `DataError` if the other one is missing."""
        X_name, Y_name = next(pair for pair in self.names.values() if path.name in pair)
        pair = path.with_name(X_name), path.with_name(Y_name)
        for file in pair:
            if not file.is_file():
                remedy = self.without_labels or f"add {file.name}"
                raise DataError(f"{file}: X and Y must lie beside each other, got only one of them; {remedy}")
        return pair

    def read(self, path: Path, options: dict[str, Any]) -> FileRows:
        """Read a pair of files; entries of Y with value zero are dropped."""
        X_path, Y_path = self.pair_of(path)
        X, Y, declared = self.read_pair(X_path, Y_path, options)
        if X.n_rows != Y.n_rows:
            raise DataError(f"{Y_path}: must have the {X.n_rows} rows of {X_path.name}, got {Y.n_rows}")
        Y = Y.without_zeros()
        return FileRows(Dataset(X, replace(Y, data=np.ones(Y.nnz, np.float32))), X_path, declared)

    @abstractmethod
    def read_pair(self, X_path: Path, Y_path: Path, options: dict[str, Any]) -> tuple[CSR, CSR, tuple[bool, bool]]:
        """Return X, Y and whether their numbers of columns were declared."""

    @abstractmethod
    def write_matrix(self, matrix: CSR, path: Path) -> None:
        """Write X or Y."""

    def write(self, path: Path, train: Dataset, test: Dataset | None, single: bool) -> None:
        """Write a folder, also of a single set: both files of each split, and the label names of the training split."""

        def write_pair(folder: Path, split: str, dataset: Dataset) -> None:
            for matrix, name in zip((dataset.X, dataset.Y), self.names[split], strict=True):
                self.write_matrix(matrix, folder / name)

        write_splits(path, train, test, write_pair)


def write_splits(
    path: Path,
    train: Dataset,
    test: Dataset | None,
    write_split: Callable[[Path, str, Dataset], None],
    with_names: bool = True,
) -> None:
    """Write a folder: each split by `write_split`, given folder, "train" or "test", and rows; then the label names."""
    from ..text import write_label_names

    with atomic_folder(path, check_free) as folder:
        for split, dataset in zip(SPLITS, (train, test), strict=True):
            if dataset is not None:
                write_split(folder, split, dataset)
        if with_names and train.label_names is not None:
            write_label_names(train.label_names, train.n_labels, folder / LABEL_NAMES)


def refuse_options(options: dict[str, Any], path: Path) -> None:
    """Raise `DataError` for options of `read_libsvm` that change the rows; `path` is no text."""
    defaults = {field.name: field.default for field in fields(Options)}
    given = [name for name, value in options.items() if name not in WITHOUT_EFFECT and value != defaults.get(name)]
    if given:
        raise DataError(f"{path}: {', '.join(given)} is for text files only; leave it out")


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a store, which may be damaged."""
    return (Path(path) / DESCRIPTION).is_file()


def check_free(path: Path) -> None:
    """Raise `FileExistsError` unless `path` is a store, a pair of them, or an empty folder, or does not exist.

    A store with a file of the user is not free either, as a new one would replace this file.
    """
    is_pair = path.is_dir() and not is_store(path)
    is_pair = is_pair and all(entry.name in SPLITS and is_store(entry) for entry in path.iterdir())
    for store in sorted(path.iterdir()) if is_pair else [path]:
        STORE.check_replaceable(store)
