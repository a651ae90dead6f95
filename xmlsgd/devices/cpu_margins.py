"""Kernels of the linear path in prediction: the weights of each label as a hash table, and the margins they give.

A row asks for a few features of each label on its list, and most answers are that there is no such weight. A hash table
takes one access for it, which can be asked for ahead; a search in sorted features takes ten that wait for each other.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from .cpu_rows import FAST
from .kernel import kernel
from .llvm import prefetch

_GOLDEN = np.uint32(2654435769)  # 2^32 over the golden ratio: spreads numbers that lie close together (Knuth)


@njit(nogil=True, inline="always")
def place_of(feature, room):
    """Return the place, below `room`, at which the search for a feature begins."""
    return np.int64((np.uint64(np.uint32(np.uint32(feature) * _GOLDEN)) * np.uint64(room)) >> np.uint64(32))


@kernel()
def hash_weights(indptr, features, weights, starts, cells, values):
    """Write the weights of all labels, CSR (L, F), into their tables.

    The table of label l lies from starts[l] to starts[l + 1] and has room for one more than its weights. `cells` int32
    (n, 2) holds a feature, -1 before, and the bits of its weight; `values` is the same memory as float32.
    """
    for label in prange(indptr.size - 1):
        first, room = starts[label], starts[label + 1] - starts[label]
        for p in range(indptr[label], indptr[label + 1]):
            at = place_of(features[p], room)
            while cells[first + at, 0] >= 0:
                at = at + 1 if at + 1 < room else 0
            cells[first + at, 0], values[first + at, 1] = features[p], weights[p]


@njit(nogil=True, fastmath=FAST)
def margins_of_row(features, entries, labels, starts, cells, values, bias, out):
    """Write the margin of each label in `labels` int32 (M,) of one row into `out` float32; see `margins`."""
    for j in range(labels.size):
        if j + 1 < labels.size and labels[j + 1] >= 0:
            following = labels[j + 1]
            first, room = starts[following], starts[following + 1] - starts[following]
            for p in range(features.size):
                prefetch(cells.ctypes.data + 8 * (first + place_of(features[p], room)))
        label = labels[j]
        if label < 0:
            out[j] = np.float32(-1)
            continue
        score, first, room = bias[label], starts[label], starts[label + 1] - starts[label]
        for p in range(features.size):
            at = place_of(features[p], room)
            while cells[first + at, 0] != features[p] and cells[first + at, 0] >= 0:
                at = at + 1 if at + 1 < room else 0
            score += values[first + at, 1] * entries[p] * (cells[first + at, 0] == features[p])
        out[j] = score


@kernel(fastmath=FAST)
def margins(indptr, indices, data, labels, starts, cells, values, bias, out):
    """Write the margin of each label in `labels` int32 (rows, M) into `out` float32; -1 where there is none.

    `starts`, `cells` and `values` are tables as `hash_weights` leaves them.
    """
    for i in prange(labels.shape[0]):
        span = slice(indptr[i], indptr[i + 1])
        margins_of_row(indices[span], data[span], labels[i], starts, cells, values, bias, out[i])
