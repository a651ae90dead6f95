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


@njit(nogil=True, inline="always")
def copy_row(matrix, row, ahead, taken, i, back):
    """Copy a row of a matrix (L, m) to row i of `taken`, or back; ask for row `ahead`. Not where L is 1."""
    if matrix.shape[0] > 1:
        prefetch_row(matrix, ahead)
        if back:
            copy_into(matrix[row], taken[i])
        else:
            copy_into(taken[i], matrix[row])


@kernel()
def copy_outputs(W, b, Ws, bs, Wt, bt, outputs, back, n_threads, W_part, b_part, Ws_part, bs_part, Wt_part, bt_part):
    """Copy these outputs of a layer of more than one, all different, into the parts; if `back`, the parts over them."""
    for t in prange(n_threads):
        last = outputs.size * (t + 1) // n_threads
        for i in range(outputs.size * t // n_threads, last):
            row, ahead = outputs[i], outputs[min(i + AHEAD, last - 1)]
            copy_row(W, row, ahead, W_part, i, back)
            copy_row(Ws, row, ahead, Ws_part, i, back)
            copy_row(Wt, row, ahead, Wt_part, i, back)
            copy_row(b, row, ahead, b_part, i, back)
            copy_row(bs, row, ahead, bs_part, i, back)
            copy_row(bt, row, ahead, bt_part, i, back)


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
def push(center, copy, base, features, width, dense, alone, n_threads):
    """Add what changed in `copy` since it was `base` to the center; `alone`: take the copy as it is.

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
                value = center[i] + (copy[i] - base[i])
                center[i] = value
                copy[i] = value
                base[i] = value
        for k in range(features.size * t // n_threads, features.size * (t + 1) // n_threads):
            for i in range(features[k] * width, (features[k] + 1) * width):
                center[i] = copy[i] if alone else center[i] + (copy[i] - base[i])
