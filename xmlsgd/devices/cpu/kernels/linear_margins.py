"""Kernels that predict with the linear classifiers: hash tables of the weights of labels, and margins.

Where labels have weights for many of all features, these are a dense matrix, which is smaller and faster to read.

Else, for each candidate label, the weights of the features of a row are looked up, and most features have none. A
filter of eight bits per weight finds most of these without a branch that is hard to predict (Bloom 1970, with one hash
function). The slots of features that pass are prefetched, and read only after the next label was filtered.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel, kernel_of_part, range_of_part
from ..intrinsics.elementary import FAST, ZERO
from ..intrinsics.llvm import prefetch

_ZERO64, _ONE64 = np.uint64(0), np.uint64(1)
_GOLDEN = np.uint32(2654435769)  # 2^32 over the golden ratio: spreads numbers that lie close together (Knuth)
CACHE_LINE = 64  # bytes
MOST_LINES = 8  # of a filter that are prefetched
AHEAD = 2  # labels by which prefetches of filters are ahead


@njit(nogil=True, inline="always")
def hash_of(feature):
    """Return the hash of the number of a feature, below 2^32."""
    return np.uint64(np.uint32(np.uint32(feature) * _GOLDEN))


@njit(nogil=True, inline="always")
def place_of(hashed, room):
    """Return the slot, below `room`, at which the search for a feature with this hash begins."""
    return (hashed * np.uint64(room)) >> np.uint64(32)


@njit(nogil=True, inline="always")
def filter_of(start, end):
    """Return the first byte of a table's filter and the number of its bits: half a byte for each slot."""
    first, last = np.uint64(start) >> _ONE64, np.uint64(end) >> _ONE64
    return first, (last - first) << np.uint64(3)


@kernel()
def hash_weights(indptr, features, weights, starts, keys, values):
    """Write the weights of all labels, CSR (L, F), to their hash tables.

    The table of label l has the slots from starts[l] to starts[l + 1], at least one more than the label has weights. In
    a slot, `keys` (n,), integers that must be 0, becomes the feature plus 1, and `values` (n,) its weight.
    """
    for label in range(indptr.size - 1):
        first, room = starts[label], starts[label + 1] - starts[label]
        for p in range(indptr[label], indptr[label + 1]):
            at = np.int64(place_of(hash_of(features[p]), room))
            while keys[first + at] != 0:
                at = at + 1 if at + 1 < room else 0
            keys[first + at], values[first + at] = features[p] + 1, weights[p]


@kernel()
def write_filters(indptr, features, starts, filters):
    """Write the filters of the tables that `hash_weights` has written; filters : uint8 (n // 2,), 0 before."""
    for label in range(indptr.size - 1):
        first, n_bits = filter_of(starts[label], starts[label + 1])
        for p in range(indptr[label], indptr[label + 1]):
            bit = place_of(hash_of(features[p]), n_bits)
            filters[first + (bit >> np.uint64(3))] |= np.uint8(1) << np.uint8(bit & np.uint64(7))


@njit(nogil=True, inline="always")
def pass_filter(hashes, start, end, filters, passed):
    """Write the indices of the entries of a row for which a label may have weights to `passed`; return their number.

    If `filters` is empty, all entries pass.
    """
    if filters.size == 0:
        for p in range(hashes.size):
            passed[p] = p
        return np.uint64(hashes.size)
    first, n_bits = filter_of(start, end)
    if n_bits == 0:  # no weights
        return _ZERO64
    n = _ZERO64
    for p in range(hashes.size):
        bit = place_of(hashes[p], n_bits)
        passed[n] = p
        n += np.uint64((filters[first + (bit >> np.uint64(3))] >> np.uint8(bit & np.uint64(7))) & np.uint8(1))
    return n


@njit(nogil=True, fastmath=FAST)
def dense_margins_of_row(features, entries, labels, values, scales, bias, out):
    """Write the margins of labels int32 (M,) of one row to `out` float32, by a dense matrix, `values` (L * F,)."""
    n_features = values.size // bias.size
    for j in range(labels.size):
        label, score = labels[j], ZERO
        out[j] = np.float32(-1)
        if label < 0:
            continue
        first = np.uint64(label * n_features)
        for p in range(features.size):
            score += np.float32(values[first + np.uint64(features[p])]) * entries[p]
        out[j] = bias[label] + scales[min(label, scales.size - 1)] * score


@njit(nogil=True, fastmath=FAST)
def margins_of_row(features, entries, labels, starts, keys, values, scales, filters, bias, out):
    """Write the margins of labels int32 (M,) of one row to `out` float32; see `margins`.

    Returns whether all tables are in range; others are never read.
    """
    sound, n_labels = True, labels.size
    if keys.size == 0:
        dense_margins_of_row(features, entries, labels, values, scales, bias, out)
        return sound
    hashes = np.empty(features.size, np.uint64)
    passed, slots = np.empty((2, features.size), np.int32), np.empty((2, features.size), np.uint64)
    counts = np.zeros(2, np.uint64)
    for p in range(features.size):
        hashes[p] = hash_of(features[p])
    for j in range(n_labels + 1):
        if filters.size > 0 and j + AHEAD < n_labels and labels[j + AHEAD] >= 0:
            byte, n_bits = filter_of(starts[labels[j + AHEAD]], starts[labels[j + AHEAD] + 1])
            for line in range(min(np.int64(n_bits) // (8 * CACHE_LINE), MOST_LINES) + 1):
                prefetch(filters.ctypes.data + np.int64(byte) + CACHE_LINE * line)
        if j < n_labels and labels[j] >= 0:
            half, first, last = j & 1, starts[labels[j]], starts[labels[j] + 1]
            counts[half] = 0
            if 0 <= first < last <= keys.size:
                n = pass_filter(hashes, first, last, filters, passed[half])
                for q in range(n):
                    slot = np.uint64(first) + place_of(hashes[passed[half, q]], last - first)
                    prefetch(keys.ctypes.data + keys.itemsize * np.int64(slot))
                    prefetch(values.ctypes.data + values.itemsize * np.int64(slot))
                    slots[half, q] = slot
                counts[half] = n
            else:
                sound = False
        if j > 0:
            half, label = (j - 1) & 1, labels[j - 1]
            out[j - 1] = np.float32(-1)
            if label < 0:
                continue
            first, last, score = np.uint64(starts[label]), np.uint64(starts[label + 1]), ZERO
            for q in range(counts[half]):
                p, slot, left = passed[half, q], slots[half, q], last - first
                wanted = features[p] + 1
                while keys[slot] != wanted and keys[slot] != 0 and left > _ZERO64:
                    slot = slot + _ONE64 if slot + _ONE64 < last else first
                    left -= _ONE64
                if keys[slot] == wanted:
                    score += np.float32(values[slot]) * entries[p]
            out[j - 1] = bias[label] + scales[min(label, scales.size - 1)] * score
    return sound


@kernel_of_part(fastmath=FAST)
def margins(part, n_parts, indptr, indices, data, labels, starts, keys, values, scales, filters, bias, out, sound):
    """Write the margins of labels int32 (rows, M) to `out` float32; -1 for labels -1.

    starts, keys, values : the tables of `hash_weights`; values of label l are multiplied by scales[l], or by the only
    scale if there is one. Without keys, `values` are a dense matrix, (L * F,). filters uint8 : those of
    `write_filters`, or (0,). sound bool (rows,) : what `margins_of_row` returns.
    """
    n_rows = labels.shape[0]
    for i in range_of_part(n_rows, part, n_parts):
        span = slice(indptr[i], indptr[i + 1])
        sound[i] = margins_of_row(
            indices[span], data[span], labels[i], starts, keys, values, scales, filters, bias, out[i]
        )
