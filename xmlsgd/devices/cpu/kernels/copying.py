"""Copies: entries of sparse rows, rows of sampled labels, a shared model and what a step on its copy has changed.

Vectors of a model are float32 (n_params,): W0, `width` floats a feature, and behind it, from `dense` on, what every
step changes.
"""

from __future__ import annotations

from numba import njit, prange

from ..compiling import kernel
from ..intrinsics.llvm import prefetch_row

AHEAD = 4  # rows asked for before they are copied


@njit(nogil=True, inline="always")
def copy_into(target, source):
    """Write the first `target.size` elements of `source`, which must have as many: that is not checked.

    For `target[:] = source` Numba compiles the text of an error: the kernels of a run took 149 s of processor time to
    compile with it, and 124 without (numba 0.68, a Xeon of 2.5 GHz).
    """
    for j in range(target.size):
        target[j] = source[j]


@kernel()
def copy_spans(starts, sizes, indices, data, targets, out_indices, out_data):
    """Copy sizes[i] entries, indices and data, from starts[i] on to targets[i] on, for every i; targets never meet."""
    for i in prange(starts.size):
        source, target = slice(starts[i], starts[i] + sizes[i]), slice(targets[i], targets[i] + sizes[i])
        copy_into(out_indices[target], indices[source])
        copy_into(out_data[target], data[source])


@kernel()
def copy_rows(matrix, rows, back, n_threads, taken):
    """Copy the given rows, all different, of a matrix (L, m) into `taken` (rows, m); if `back`, `taken` over them."""
    for t in prange(n_threads):
        last = rows.size * (t + 1) // n_threads
        for i in range(rows.size * t // n_threads, last):
            if i + AHEAD < last:
                prefetch_row(matrix, rows[i + AHEAD])
            if back:
                copy_into(matrix[rows[i]], taken[i])
            else:
                copy_into(taken[i], matrix[rows[i]])


@kernel()
def pull_rows(center, copy, base, features, width, n_threads):
    """Copy rows of W0 from the center to `copy` and `base`; features are all different."""
    for t in prange(n_threads):
        for k in range(features.size * t // n_threads, features.size * (t + 1) // n_threads):
            for i in range(features[k] * width, (features[k] + 1) * width):
                value = center[i]
                copy[i] = value
                base[i] = value


@kernel()
def push(center, copy, base, features, width, dense, factor, alone, n_threads):
    """Add `factor` times what changed in `copy` since it was `base` to the center; `alone`: take the copy as it is.

    Behind W0 both become the center on the way, which is a pull for two vectors more written, and none read.
    """
    n = center.size - dense
    for t in prange(n_threads):
        first, last = dense + n * t // n_threads, dense + n * (t + 1) // n_threads
        if alone:
            for i in range(first, last):
                value = copy[i]
                center[i] = value
                base[i] = value
        else:
            for i in range(first, last):
                value = center[i] + factor * (copy[i] - base[i])
                center[i] = value
                copy[i] = value
                base[i] = value
        for k in range(features.size * t // n_threads, features.size * (t + 1) // n_threads):
            for i in range(features[k] * width, (features[k] + 1) * width):
                center[i] = copy[i] if alone else center[i] + factor * (copy[i] - base[i])
