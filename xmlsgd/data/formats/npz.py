"""Pairs of SciPy's sparse matrices, named as PECOS names them.

    X.trn.npz     Y.trn.npz    X.tst.npz     Y.tst.npz      `scipy.sparse.save_npz`

An entry of Y is a label of the row if its value is not zero; the value itself is dropped. `labels.txt` beside the files
holds the label names, where they are known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ...errors import DataError, shorten
from ..csr import CSR
from ..files.reading import raise_of_system
from .base import PairFormat


class Npz(PairFormat):
    """Pairs of npz files."""

    files = "X.trn.npz and Y.trn.npz (*.tst.npz)"
    precedence = 3
    names: ClassVar = {"train": ("X.trn.npz", "Y.trn.npz"), "test": ("X.tst.npz", "Y.tst.npz")}

    def recognizes(self, path: Path) -> bool:
        """Return whether a path is a npz file, of any name: `read` says which names it must have."""
        return path.suffix == ".npz" and not path.is_dir()

    def pair_of(self, path: Path) -> tuple[Path, Path]:
        """Return the files of X and Y of which `path` is one."""
        if not super().recognizes(path):
            known = ", ".join(name for pair in self.names.values() for name in pair)
            raise DataError(f"{path}: an npz file must be one of {known}")
        return super().pair_of(path)

    def read_pair(self, X_path: Path, Y_path: Path, options: dict[str, Any]) -> tuple[CSR, CSR, tuple[bool, bool]]:
        """Return X and Y, which declare their shapes."""
        return _load_matrix(X_path), _load_matrix(Y_path), (True, True)

    def write_matrix(self, matrix: CSR, path: Path) -> None:
        """Write a matrix as SciPy does, not compressed."""
        import scipy.sparse as sp

        # A matrix, not an array: readers with an older SciPy know no other.
        arrays = (matrix.data, matrix.indices, matrix.indptr)
        sp.save_npz(path, sp.csr_matrix(arrays, shape=matrix.shape, copy=False), compressed=False)


FORMAT = Npz()


def _load_matrix(path: Path) -> CSR:
    """Return the canonical matrix of a file that `scipy.sparse.save_npz` wrote; nothing in it is unpickled."""
    import scipy.sparse as sp

    try:
        with path.open("rb") as stream:  # NumPy does not close a damaged file
            matrix = sp.load_npz(stream)
    except MemoryError as error:  # a few bytes may claim any shape
        raise DataError(f"{path}: must fit memory, got {shorten(str(error), 100)}") from error
    except Exception as error:  # SciPy checks little of what a file claims: anything may be raised
        raise_of_system(error, path)
        raise DataError(f"{path}: must be a sparse matrix saved by scipy, got {shorten(str(error), 100)}") from error
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"{path}: data must be real numbers, got {matrix.dtype}")
    return CSR.from_scipy(matrix, str(path))
