"""Kernels that predict with the linear classifiers: the weights of a label as a hash table, and the margins they give.

A row asks for a few features of each label on its list, and most answers are that there is no such weight. A hash table
takes one access for it, which can be asked for ahead; a search in sorted features takes ten that wait for each other.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from ..intrinsics.elementary import FAST
from ..intrinsics.llvm import prefetch

_ZERO = np.float32(0)
_GOLDEN = np.uint32(2654435769)  # 2^32 over the golden ratio: spreads numbers that lie close together (Knuth)


@njit(nogil=True, inline="always")
def place_of(feature, room):
    """Return the place, below `room`, at which the search for a feature begins."""
    return np.int64((np.uint64(np.uint32(np.uint32(feature) * _GOLDEN)) * np.uint64(room)) >> np.uint64(32))


@kernel()
def hash_weights(indptr, features, weights, starts, keys, values):
    """Write the weights of all labels, CSR (L, F), into their tables.

    The table of label l lies from starts[l] to starts[l + 1] and has room for one more than its weights. `keys` (n,)
    are integers, 0 before, that become a feature plus 1 where `values` (n,) gets its weight.
    """
    for label in prange(indptr.size - 1):
        first, room = starts[label], starts[label + 1] - starts[label]
        for p in range(indptr[label], indptr[label + 1]):
            at = place_of(features[p], room)
            while keys[first + at] != 0:
                at = at + 1 if at + 1 < room else 0
            keys[first + at], values[first + at] = features[p] + 1, weights[p]


@njit(nogil=True, fastmath=FAST)
def margins_of_row(features, entries, labels, starts, keys, values, scales, bias, out):
    """Write the margin of each label in `labels` int32 (M,) of one row into `out` float32; see `margins`.

    Returns whether the tables were found where they have to be; if not, nothing outside of them was read.
    """
    sound = True
    for j in range(labels.size):
        if j + 1 < labels.size and labels[j + 1] >= 0:
            following = labels[j + 1]
            first, room = starts[following], starts[following + 1] - starts[following]
            for p in range(features.size):
                prefetch(keys.ctypes.data + keys.itemsize * (first + place_of(features[p], room)))
        label = labels[j]
        out[j] = np.float32(-1)
        if label < 0:
            continue
        first, last = starts[label], starts[label + 1]
        if not 0 <= first < last <= keys.size:
            sound = False
            continue
        score, room = _ZERO, last - first
        for p in range(features.size):
            wanted = features[p] + 1
            at, left = place_of(features[p], room), room
            while keys[first + at] != wanted and keys[first + at] != 0 and left > 0:
                at = at + 1 if at + 1 < room else 0
                left -= 1
            if keys[first + at] == wanted:
                score += np.float32(values[first + at]) * entries[p]
        out[j] = bias[label] + scales[min(label, scales.size - 1)] * score
    return sound


@kernel(fastmath=FAST)
def margins(indptr, indices, data, labels, starts, keys, values, scales, bias, out, sound):
    """Write the margin of each label in `labels` int32 (rows, M) into `out` float32; -1 where there is none.

    `starts`, `keys` and `values` are tables as `hash_weights` leaves them; values of label l count scales[l] times,
    where there is one scale, that. `sound` bool (rows,) is what `margins_of_row` returns.
    """
    for i in prange(labels.shape[0]):
        span = slice(indptr[i], indptr[i + 1])
        sound[i] = margins_of_row(indices[span], data[span], labels[i], starts, keys, values, scales, bias, out[i])
