"""The arrays of a store: vectors in files of their own, of NumPy's format, with headers of one length."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..errors import DataError, shorten
from .files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

DTYPES: dict[str, np.dtype[Any]] = {
    "X_indptr": np.dtype("<i8"),
    "X_indices": np.dtype("<i4"),
    "X_data": np.dtype("<f4"),
    "Y_indptr": np.dtype("<i8"),
    "Y_indices": np.dtype("<i4"),
}
HEADER_BYTES = 128  # what NumPy writes before a vector of any length


def write_arrays(blocks: Iterable[Sequence[np.ndarray]], folder: Path) -> dict[str, int]:
    """Write the arrays of a store into `folder` and return the length of each."""
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(closing(_ArrayFile(folder / f"{name}.npy", DTYPES[name]))) for name in DTYPES
        }
        for pointers in ("X_indptr", "Y_indptr"):
            files[pointers].append(np.zeros(1, np.int64))
        for X_indptr, X_indices, X_data, Y_indptr, Y_indices in blocks:
            files["X_indptr"].append(X_indptr[1:] + files["X_indices"].size)
            files["Y_indptr"].append(Y_indptr[1:] + files["Y_indices"].size)
            files["X_indices"].append(X_indices)
            files["X_data"].append(X_data)
            files["Y_indices"].append(Y_indices)
        for file in files.values():
            file.finish()
        return {name: file.size for name, file in files.items()}


def open_array(file: Path, dtype: np.dtype[Any], size: int) -> np.ndarray:
    """Map a vector; raise `DataError` unless the file holds exactly one of this type and length."""
    n_bytes = HEADER_BYTES + size * dtype.itemsize
    try:
        with open_regular(file) as stream:
            got = os.fstat(stream.fileno()).st_size
            if got != n_bytes:
                raise DataError(f"{file}: must have {n_bytes} bytes for {size} {dtype.name} values, got {got}")
            header = stream.read(HEADER_BYTES)
            if header != _npy_header(dtype, size):
                raise DataError(f"{file}: must be a vector of {size} {dtype.name} values, got {shorten(header[10:])}")
            mapped = np.memmap(stream, dtype, mode="r", offset=HEADER_BYTES, shape=(size,))
    except OSError as error:
        raise DataError(f"{file}: must be a readable file, got {error.strerror or error}") from error
    return mapped.view(np.ndarray)  # Numba knows the plain class faster


class _ArrayFile:
    """A `.npy` file of a vector that grows; its header is written last, when the length is known."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._stream: BinaryIO = path.open("xb")
        self._stream.write(bytes(HEADER_BYTES))
        self._dtype = dtype
        self.size = 0

    def append(self, part: np.ndarray) -> None:
        """Write the next entries."""
        self._stream.write(np.ascontiguousarray(part, dtype=self._dtype).data)
        self.size += len(part)

    def finish(self) -> None:
        """Write the header."""
        self._stream.seek(0)
        self._stream.write(_npy_header(self._dtype, self.size))

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _npy_header(dtype: np.dtype[Any], size: int) -> bytes:
    """Return what NumPy writes before a vector (format 1.0), of one length for every size."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({size},), }}".encode()
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return start + text.ljust(HEADER_BYTES - 11) + b"\n"
