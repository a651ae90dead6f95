"""Replace rows of a sparse matrix."""

from __future__ import annotations

import numpy as np

from ..data.csr import CSR, pointers
from ..devices.cpu import CPU
from ..devices.cpu.kernels.copying import copy_spans


def with_replaced(matrix: CSR, rows: np.ndarray, new: CSR, n_rows: int, device: CPU) -> CSR:
    """Return a copy of `matrix` with `n_rows` rows and the columns of `new`, in which row rows[i] is row i of `new`."""
    sizes = np.zeros(n_rows, np.int64)
    sizes[: matrix.n_rows] = np.diff(matrix.indptr)
    sizes[rows] = 0
    kept = sizes[: matrix.n_rows].copy()
    sizes[rows] = np.diff(new.indptr)
    indptr = pointers(sizes)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    device.run(copy_spans, matrix.indptr[:-1], kept, matrix.indices, matrix.data, indptr[:-1], indices, data)
    device.run(copy_spans, new.indptr[:-1], sizes[rows], new.indices, new.data, indptr[rows], indices, data)
    return CSR(indptr, indices, data, new.n_cols)
