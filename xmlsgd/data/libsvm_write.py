"""Data sets written as LIBSVM text."""

from __future__ import annotations

import bz2
import gzip
import lzma
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from ..errors import DataError
from .files import whole_file

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from .csr import Dataset

WRITE_ENTRIES = 1 << 16  # features formatted at a time
COMPRESSORS: dict[str, Callable[..., Any]] = {
    ".gz": partial(gzip.GzipFile, "", "wb", 6, mtime=0),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
}


def write_libsvm(dataset: Dataset, path: str | os.PathLike[str], header: bool = True) -> None:
    """Write a data set as LIBSVM text; a name that ends in `.gz`, `.bz2` or `.xz` is compressed.

    `read_libsvm` returns it bit for bit (but subnormals as zero, and entries of Y as one): values have the fewest
    digits that name their float32. Without the header the shape is that of the largest indices. The file appears
    under its name when it is complete. Raises `DataError` for what no reader could get back: values that are not
    finite, no feature or no label in the whole set, or empty last rows without a header.
    """
    _check_writable(dataset, header)
    path = Path(path)
    with whole_file(path) as raw, _compressor(raw, path.suffix) as stream:
        if header:
            stream.write(b"%d %d %d\n" % (dataset.n_rows, dataset.n_features, dataset.n_labels))
        start = 0
        while start < dataset.n_rows:
            most = dataset.X.indptr[start] + WRITE_ENTRIES
            stop = int(np.searchsorted(dataset.X.indptr, most, side="right")) - 1
            stop = min(max(stop, start + 1), start + WRITE_ENTRIES, dataset.n_rows)
            stream.write(_format_rows(dataset, start, stop))
            start = stop


def _check_writable(dataset: Dataset, header: bool) -> None:
    """Raise `DataError` for a data set that would not be read back."""
    X, Y = dataset.X, dataset.Y
    if X.nnz == 0 or Y.nnz == 0:
        what = "label" if X.nnz else "feature"
        raise DataError(f"dataset must have at least one {what}, got {dataset.n_rows} rows without any")
    for start in range(0, X.nnz, WRITE_ENTRIES):
        bad = np.flatnonzero(~np.isfinite(X.data[start : start + WRITE_ENTRIES]))
        if len(bad):
            row = int(np.searchsorted(X.indptr, start + bad[0], side="right")) - 1
            raise DataError(f"X: row {row}: values must be finite float32, got {X.data[start + bad[0]]}")
    if not header and X.indptr[-2] == X.nnz and Y.indptr[-2] == Y.nnz:
        raise DataError(f"X: row {dataset.n_rows - 1}: last row must not be empty without a header; pass header=True")


def _format_rows(dataset: Dataset, start: int, stop: int) -> bytes:
    """Return the lines of rows [start, stop)."""
    X, Y = dataset.X, dataset.Y
    first_entry, first_label = int(X.indptr[start]), int(Y.indptr[start])
    entries, labels = slice(first_entry, int(X.indptr[stop])), slice(first_label, int(Y.indptr[stop]))
    # NumPy prints the shortest decimal of a float32, Python would print that of the float64 of equal value.
    values = [text.removesuffix(b".0") for text in X.data[entries].astype("S32").tolist()]
    pairs = list(map(b"%d:%b".__mod__, zip(X.indices[entries].tolist(), values, strict=True)))
    names = list(map(b"%d".__mod__, Y.indices[labels].tolist()))
    lines = []
    X_ends = (X.indptr[start : stop + 1] - first_entry).tolist()
    Y_ends = (Y.indptr[start : stop + 1] - first_label).tolist()
    for row in range(stop - start):
        line = b",".join(names[Y_ends[row] : Y_ends[row + 1]])
        if X_ends[row] < X_ends[row + 1]:
            line += b" " + b" ".join(pairs[X_ends[row] : X_ends[row + 1]])
        lines.append(line + b"\n")
    return b"".join(lines)


@contextmanager
def _compressor(raw: BinaryIO, suffix: str) -> Iterator[BinaryIO]:
    """Yield a stream that compresses into `raw` as the file name's end asks for."""
    if suffix not in COMPRESSORS:
        yield raw
        return
    with COMPRESSORS[suffix](raw) as stream:
        yield cast("BinaryIO", stream)
