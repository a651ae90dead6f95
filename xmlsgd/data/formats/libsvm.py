"""Multi-label LIBSVM text, the format of the Extreme Classification Repository.

    n_rows n_features n_labels        (header, optional; two integers name rows and features)
    3,17 0:0.5 9:1.25                 (labels, then index:value of each feature)
     4:1                              (a row without labels begins with a space; so may a first `index:value`)

Features and labels count from zero; `zero_based=False` says that features, and `zero_based_labels=False` that labels
count from one. Values are rounded to float32, subnormals to zero. A blank line is a row with neither labels nor
features, except at the end of the file, where blank lines count only up to the number of rows in the header.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import DataError
from ..csr import CSR, Dataset, check_entries, row_spans, stacked
from ..files.atomic import atomic_file, compressed_by_name
from ..files.reading import COMPRESSED_SUFFIXES
from ..parser.blocks import LibsvmBlocks
from .base import SPLITS, FileRows, Format, write_splits

SUFFIXES = ("", *COMPRESSED_SUFFIXES)
WRITE_ENTRIES = 1 << 16  # features formatted at once


def read_libsvm(path: str | os.PathLike[str], **options: Any) -> Dataset:
    """Read a multi-label LIBSVM file, which may be compressed by gzip, bzip2 or xz.

    Parameters
    ----------
    path : str or path
        The file.
    **options
        As in `load_file`.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        For whatever is wrong with the file, as `file:line: what was wrong, what was got`.
    """
    return _read_all(Path(path), options).dataset


def read_libsvm_features(path: Path, **options: Any) -> tuple[CSR, bool]:
    """Return the rows of a file that holds `index:value` alone, and whether it declares the number of features.

    Options and errors are those of `read_libsvm`.
    """
    found = _read_all(path, {**options, "labelled": False})
    return found.dataset.X, found.declared[0]


def write_libsvm(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as LIBSVM text; a name that ends in `.gz`, `.bz2` or `.xz` is compressed.

    Values have the fewest digits that identify their float32. So `read_libsvm` returns the same bits, except that
    subnormals become zero and entries of Y one.

    Parameters
    ----------
    dataset : Dataset
        The rows.
    path : str or path
        The file. It appears, or replaces an earlier one, when it is complete.

    Raises
    ------
    DataError
        For a data set that could not be read back: with values that are not finite, or without any feature or label.
    """
    X, Y, path = dataset.X, dataset.Y, Path(path)
    if X.nnz == 0 or Y.nnz == 0:
        what = "label" if X.nnz else "feature"
        raise DataError(f"dataset must have at least one {what}, got {dataset.n_rows} rows without any")
    check_entries(X, ("X: indices", "X"))
    with atomic_file(path) as raw, compressed_by_name(path, raw) as stream:
        stream.write(b"%d %d %d\n" % (dataset.n_rows, dataset.n_features, dataset.n_labels))
        write_rows(stream, X, Y)


def write_rows(stream: BinaryIO, X: CSR, Y: CSR | None = None) -> None:
    """Write rows as text, each with its labels first if Y is given."""
    for start, stop in row_spans([X], WRITE_ENTRIES):
        rows = X.span(start, stop)
        # By NumPy, which prints the shortest decimal of a float32; Python would print that of an equal float64.
        values = [text.removesuffix(b".0") for text in rows.data.astype("S32").tolist()]
        pairs = list(map(b"%d:%b".__mod__, zip(rows.indices.tolist(), values, strict=True)))
        ends = rows.indptr.tolist()
        lines = [b" ".join(pairs[ends[row] : ends[row + 1]]) for row in range(rows.n_rows)]
        if Y is not None:
            labels = Y.span(start, stop)
            names, ends = list(map(b"%d".__mod__, labels.indices.tolist())), labels.indptr.tolist()
            starts = [b",".join(names[ends[row] : ends[row + 1]]) for row in range(rows.n_rows)]
            lines = [b" ".join((first, line)) if line else first for first, line in zip(starts, lines, strict=True)]
        stream.write(b"\n".join(lines) + b"\n")


class Libsvm(Format):
    """Text files of rows."""

    files = "train.txt and test.txt (or NAME_train.txt and NAME_test.txt; .gz, .bz2, .xz)"
    precedence = 1
    is_text = True

    def recognizes(self, path: Path) -> bool:
        """Return whether a file has a name that only train and test files have."""
        ends = tuple(f"{split}.txt{suffix}" for split in SPLITS for suffix in SUFFIXES)
        return path.name.endswith(ends) and not path.is_dir()

    def find(self, folder: Path) -> dict[str, Path]:
        """Return `train.txt` and `test.txt`; without these, `NAME_train.txt` and `NAME_test.txt`."""
        found: dict[str, Path] = {}
        start = ""
        for split in SPLITS:
            files = [folder / f"{start}{split}.txt{suffix}" for suffix in SUFFIXES]
            files = [file for file in files if file.is_file()]
            if not files and split == "train":
                files = sorted(file for suffix in SUFFIXES for file in folder.glob(f"*_train.txt{suffix}"))
            if len(files) > 1:
                raise DataError(f"{folder}: must hold one {split} file, got {', '.join(file.name for file in files)}")
            if files:
                found[split] = files[0]
                start = files[0].name.partition("train.txt")[0]
        return found

    def read(self, path: Path, options: dict[str, Any]) -> FileRows:
        """Read a text file."""
        return _read_all(path, options)

    def write(self, path: Path, train: Dataset, test: Dataset | None, single: bool) -> None:
        """Write a file, or a folder with a file for each split and one of label names."""
        if single:
            write_libsvm(train, path)
        else:
            write_splits(path, train, test, lambda folder, split, rows: write_libsvm(rows, folder / f"{split}.txt"))


FORMAT = Libsvm()


def _read_all(path: Path, options: dict[str, Any]) -> FileRows:
    """Return the rows of a text file."""
    blocks = LibsvmBlocks(path, **options)
    X, Y = zip(*((rows.X, rows.Y) for rows in blocks), strict=True)
    n_features, n_labels = blocks.shape  # known after the last block
    return FileRows(Dataset(stacked(X, n_features), stacked(Y, n_labels)), path, blocks.declared)
