"""Copies inside kernels."""

from __future__ import annotations

from numba import njit, prange

from ..compiling import kernel


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
