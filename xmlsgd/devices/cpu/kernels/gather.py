"""Kernels of sampled labels: gather their rows from a matrix, and scatter them back."""

from __future__ import annotations

from numba import prange

from ..compiling import kernel
from ..intrinsics.llvm import prefetch_row
from .copying import copy_into

AHEAD = 4  # rows asked for before they are copied


@kernel()
def gather_rows(matrix, rows, n_threads, taken):
    """Copy the given rows of a matrix (L, m) into `taken` (rows, m)."""
    for t in prange(n_threads):
        last = rows.size * (t + 1) // n_threads
        for i in range(rows.size * t // n_threads, last):
            if i + AHEAD < last:
                prefetch_row(matrix, rows[i + AHEAD])
            copy_into(taken[i], matrix[rows[i]])


@kernel()
def scatter_rows(taken, rows, n_threads, matrix):
    """Copy `taken` (rows, m) over the given rows, all different, of a matrix (L, m)."""
    for t in prange(n_threads):
        last = rows.size * (t + 1) // n_threads
        for i in range(rows.size * t // n_threads, last):
            if i + AHEAD < last:
                prefetch_row(matrix, rows[i + AHEAD])
            copy_into(matrix[rows[i]], taken[i])
