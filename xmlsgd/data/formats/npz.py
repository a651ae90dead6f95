"""Pairs of sparse matrices saved by SciPy, with the file names of PECOS.

    X.trn.npz     Y.trn.npz    X.tst.npz     Y.tst.npz      `scipy.sparse.save_npz`

Y holds 0 and 1. `labels.txt` beside the files holds the label names, if they are known.
"""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from ...errors import DataError, shorten
from ..csr import CSR, row_of
from ..files.folders import read_array_header
from ..files.system_errors import raise_system_error
from .base import PairFormat

# Types of the arrays that SciPy writes, by NumPy's letters: real numbers, integers, text.
ARRAY_TYPES = {
    "data": "biuf",
    **dict.fromkeys(("indices", "indptr", "row", "col", "offsets", "shape"), "iu"),
    "format": "SU",
}
TYPE_NAMES = {"biuf": "real numbers", "iu": "integers", "SU": "text"}
FREE_BYTES = 64 << 20  # size of arrays that a file of any size may claim
MAX_EXPANSION = 200  # bytes of arrays per byte of a larger file: equal values and their indices compress as well


class Npz(PairFormat):
    """Pairs of npz files."""

    files = "X.trn.npz and Y.trn.npz (*.tst.npz)"
    precedence = 3
    names: ClassVar = {"train": ("X.trn.npz", "Y.trn.npz"), "test": ("X.tst.npz", "Y.tst.npz")}
    without_labels = "for rows without labels, save a Y without entries"

    def recognizes(self, path: Path) -> bool:
        """Return whether a path is an npz file of any name; `pair_of` refuses wrong names, with the right ones."""
        return path.suffix == ".npz" and not path.is_dir()

    def pair_of(self, path: Path) -> tuple[Path, Path]:
        """Return the files of X and Y; path : one of them. Raises `DataError` for another name."""
        if not super().recognizes(path):
            known = ", ".join(name for pair in self.names.values() for name in pair)
            raise DataError(f"{path}: an npz file must be one of {known}")
        return super().pair_of(path)

    def read_pair(self, X_path: Path, Y_path: Path, options: dict[str, Any]) -> tuple[CSR, CSR, tuple[bool, bool]]:
        """Return X and Y, which declare their shapes; raise `DataError` for a Y that is no indicator, as `fit` does."""
        X, Y = _load_matrix(X_path), _load_matrix(Y_path)
        if len(wrong := np.flatnonzero((Y.data != 0) & (Y.data != 1))):
            row, got = row_of(Y.indptr, wrong[0]), f"{Y.data[wrong[0]]:g} in column {Y.indices[wrong[0]]}"
            remedy = "save Y != 0 to drop the values"
            raise DataError(f"{Y_path}: row {row}: an indicator must hold 0 and 1, got {got}; {remedy}")
        return X, Y, (True, True)

    def write_matrix(self, matrix: CSR, path: Path) -> None:
        """Write a matrix as SciPy does, not compressed."""
        import scipy.sparse as sp

        # A sparse matrix, not a sparse array, which older versions of SciPy cannot read.
        arrays = (matrix.data, matrix.indices, matrix.indptr)
        sp.save_npz(path, sp.csr_matrix(arrays, shape=matrix.shape, copy=False), compressed=False)


FORMAT = Npz()


def _load_matrix(path: Path) -> CSR:
    """Return the canonical matrix of a file that `scipy.sparse.save_npz` wrote; nothing in it is unpickled."""
    import scipy.sparse as sp

    try:
        with path.open("rb") as stream:  # opened here, as NumPy does not close a damaged file
            _check_headers(stream, path)
            return CSR.from_scipy(sp.load_npz(stream), str(path))
    except DataError:
        raise
    except MemoryError as error:  # a few bytes may claim any shape
        raise DataError(f"{path}: must fit memory, got {shorten(str(error), 100)}") from error
    except Exception as error:  # SciPy checks little of what a file claims: anything may be raised
        raise_system_error(error, path)
        raise DataError(f"{path}: must be a sparse matrix saved by scipy, got {shorten(str(error), 100)}") from error


def _check_headers(stream: BinaryIO, path: Path) -> None:
    """Raise `DataError` for arrays with types or sizes that no sparse matrix has; reads headers and shape alone."""
    total, lengths, n_rows = 0, {}, 0
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            with archive.open(info) as member:
                shape, _, dtype = read_array_header(member)
                if name in ARRAY_TYPES and dtype.kind not in ARRAY_TYPES[name]:
                    raise DataError(f"{path}: {name} must be {TYPE_NAMES[ARRAY_TYPES[name]]}, got {dtype}")
                if name == "shape":
                    n_rows = int(np.frombuffer(member.read(dtype.itemsize), dtype)[0])
            total, lengths[name] = total + max(info.file_size, math.prod(shape) * dtype.itemsize), shape[:1]
    if lengths.get("indptr") != (n_rows + 1,):
        total += 8 * max(n_rows, 0)  # pointers to rows, which SciPy makes of other formats than CSR
    size = stream.seek(0, os.SEEK_END)
    if total > max(FREE_BYTES, MAX_EXPANSION * size):
        raise DataError(f"{path}: its arrays claim {total / 1e6:,.0f} MB, too much for a file of {size / 1e6:,.3f} MB")
    for name in ("indices", "row", "col"):
        if name in lengths and lengths[name] != lengths.get("data"):
            got = f"got {lengths.get('data')} and {lengths[name]}"
            raise DataError(f"{path}: data and {name} must be of one length, {got}")
    stream.seek(0)
