"""Kernels of the sparse input layer: gather-add forward, row-sparse backward fused with the update.

There is no dense gradient of W0: the entries of a batch are grouped by feature, and the row of W0 of each feature is
updated as soon as its gradient is summed.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from ..intrinsics.elementary import FAST, ZERO
from ..intrinsics.llvm import prefetch_row
from .copying import copy_into
from .loss_and_update import update_row
from .random import kept

AHEAD = 2  # rows of W0 by which prefetches are ahead of additions


@njit(nogil=True, fastmath=FAST)
def activate_row(features, values, W, scales, b, a):
    """Write the activations a (H,) of a row, given its entries, as `input_forward` does."""
    copy_into(a, b)
    for p in range(features.size):
        feature = features[p]
        if p + AHEAD < features.size:
            prefetch_row(W, np.int64(features[p + AHEAD]))
        x, w = values[p] * scales[min(feature, scales.size - 1)], W[feature]
        for j in range(a.size):
            a[j] += x * np.float32(w[j])
    for j in range(a.size):
        a[j] = max(a[j], ZERO)


@kernel(fastmath=FAST)
def input_forward(rows, indptr, indices, data, W, scales, b, A):
    """Write A (B, H) = relu(X[rows] W + b).

    W is float32, or int8 with a scale per row: `scales` float32 (F,), or (1,) for the same scale in all rows.
    """
    for i in prange(rows.size):
        begin, end = indptr[rows[i]], indptr[rows[i] + 1]
        activate_row(indices[begin:end], data[begin:end], W, scales, b, A[i])


@kernel()
def group_entries(rows, indptr, indices, data, counts, features, starts, entry_row, entry_value):
    """Group the entries of a batch by feature, by counting them and then writing them; return the number of features.

    `counts` int32 (F,) is zero before and after. Segment f of `entry_row` (index of the row in the batch) and
    `entry_value`, from `starts[f]` to `starts[f + 1]`, belongs to `features[f]`. Features are in the order in which
    they first occur in the batch, so the result does not depend on threads.
    """
    n_features = 0
    for i in range(rows.size):
        for q in range(indptr[rows[i]], indptr[rows[i] + 1]):
            f = indices[q]
            if counts[f] == 0:
                features[n_features] = f
                n_features += 1
            counts[f] += 1
    starts[0] = 0
    for s in range(n_features):
        f = features[s]
        starts[s + 1] = starts[s] + counts[f]
        counts[f] = starts[s]
    for i in range(rows.size):
        for q in range(indptr[rows[i]], indptr[rows[i] + 1]):
            at = counts[indices[q]]
            counts[indices[q]] = at + 1
            entry_row[at] = i
            entry_value[at] = data[q]
    for s in range(n_features):
        counts[features[s]] = 0
    return n_features


@kernel(fastmath=FAST)
def input_update(dA, features, starts, entry_row, entry_value, W, s, t, update, hyper, gradients):
    """Sum the gradient of the row of W (F, H) of each feature, value * dA[row] over its entries, and update the row.

    `gradients` (threads, H) is scratch. Each feature belongs to one thread, so no two threads write the same row.
    """
    n_threads = gradients.shape[0]
    n_features = features.size
    s_rows, t_rows = s.shape[0], t.shape[0]
    for thread in prange(n_threads):
        g = gradients[thread]
        for f in range(thread, n_features, n_threads):
            g[:] = ZERO
            for q in range(starts[f], starts[f + 1]):
                x, d = entry_value[q], dA[entry_row[q]]
                for j in range(g.size):
                    g[j] += x * d[j]
            row = features[f]
            update_row(update, W[row], g, s[min(row, s_rows - 1)], t[min(row, t_rows - 1)], hyper)


@kernel()
def drop(A, seed, threshold, factor):
    """Set entries of A (B, H) whose hash is below the threshold to zero, in place; multiply others by `factor`."""
    width = A.shape[1]
    for i in prange(A.shape[0]):
        for j in range(width):
            A[i, j] = A[i, j] * factor if kept(seed, i * width + j, threshold) else ZERO
