"""Copies: entries of sparse rows, weights of sampled labels, and exchange of a shared model with a worker's copy.

The vector of a model, float32 (n_params,), has W0 first, `width` floats per feature, and from `dense` on all other
parameters, which every step changes.
"""

from __future__ import annotations

from numba import njit, prange

from ..compiling import kernel, kernel_of_part, range_of_part
from ..intrinsics.llvm import prefetch_row

AHEAD = 4  # rows by which prefetches are ahead of copies


@njit(nogil=True, inline="always")
def copy_into(target, source):
    """Copy the first `target.size` elements of `source`, which must have as many: this is not checked.

    For `target[:] = source`, Numba also compiles an error message: with it, compiling the kernels of a run took 149 s
    of processor time, without 124 s (numba 0.68, a Xeon of 2.5 GHz).
    """
    for j in range(target.size):
        target[j] = source[j]


@kernel_of_part()
def copy_spans(part, n_parts, starts, sizes, indices, data, targets, out_indices, out_data):
    """Copy sizes[i] entries, indices and data, from starts[i] to targets[i], for each i; targets do not overlap."""
    n = starts.size
    for i in range_of_part(n, part, n_parts):
        source, target = slice(starts[i], starts[i] + sizes[i]), slice(targets[i], targets[i] + sizes[i])
        copy_into(out_indices[target], indices[source])
        copy_into(out_data[target], data[source])


@njit(nogil=True)
def copy_row(matrix, row, ahead, taken, i, back):
    """Copy a row of a matrix (L, m) to row i of `taken`, or back, and prefetch row `ahead`; do nothing if L is 1."""
    if matrix.shape[0] > 1:
        prefetch_row(matrix, ahead)
        if back:
            copy_into(matrix[row], taken[i])
        else:
            copy_into(taken[i], matrix[row])


@kernel()
def copy_outputs(W, b, Ws, bs, Wt, bt, outputs, back, n_threads, W_part, b_part, Ws_part, bs_part, Wt_part, bt_part):
    """Copy outputs of a layer, all different, to the parts; if `back`, from the parts. The layer has two or more."""
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
    """Copy the rows of W0 of some features, all different, from the center to `copy` and `base`."""
    for t in prange(n_threads):
        for k in range(features.size * t // n_threads, features.size * (t + 1) // n_threads):
            for i in range(features[k] * width, (features[k] + 1) * width):
                value = center[i]
                copy[i] = value
                base[i] = value


@kernel()
def push(center, copy, base, features, width, dense, alone, n_threads):
    """Add the change of `copy` since `base` to the center; if `alone`, copy `copy` to the center.

    From `dense` on, `copy` and `base` become the new center. This is a pull that reads no vector more.
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
