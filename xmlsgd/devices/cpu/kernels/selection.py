"""Kernels that select: the highest values of a list, with what belongs to them.

Read as integers, the bits of floats have the order of the floats, once the bits below the sign of negative ones are
inverted. Bisection over these integers finds the smallest key to keep; each step counts the keys from a limit on, 16 at
a time and without branches.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..intrinsics.elementary import ZERO
from .copying import copy_into

_LOWEST, _HIGHEST = np.int32(-(2**31)), np.int32(2**31 - 1)  # below and above the keys of all numbers


@njit(nogil=True)
def replace_worst(values, items, value, item):
    """Replace the root of a heap, its smallest value, by (value, item), and restore the heap."""
    i, n = 0, values.size
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and values[child + 1] < values[child]:
            child += 1
        if value <= values[child]:
            break
        values[i], items[i] = values[child], items[child]
        i = child
    values[i], items[i] = value, item


@njit(nogil=True)
def count_at_least(sort_keys, limit):
    """Return how many elements of `sort_keys` int32 are at least `limit`."""
    n = np.int32(0)
    for j in range(sort_keys.size):
        n += np.int32(sort_keys[j] >= limit)
    return n


@njit(nogil=True)
def bisect(sort_keys, low, high, size, most):
    """Return [low, high), narrowed until `size` to `most` keys are at least `low`, or only one integer is left.

    Requires, and preserves, that at least `size` keys are at least `low`, and fewer at least `high`.
    """
    while high - low > 1:
        middle = low + (high - low) // 2
        n = count_at_least(sort_keys, np.int32(middle))
        if n < size:
            high = middle
            continue
        low = middle
        if n <= most:
            break
    return low, high


@njit(nogil=True)
def keep_best(values, items, n, best, best_items):
    """Copy the largest of the first n values and their items to `best` and `best_items`, in no order.

    Values are above 0; 0 and -1 fill up. Of equal values, the first ones are kept. `values` and `items` are changed.
    """
    best[:], best_items[:] = ZERO, -1
    size = best.size
    if n <= size:
        copy_into(best[:n], values)
        copy_into(best_items[:n], items)
        return
    sort_keys = values[:n].view(np.int32)
    least, largest = sort_keys[0], sort_keys[0]
    for j in range(n):
        least, largest = min(least, sort_keys[j]), max(largest, sort_keys[j])
    high = np.int64(min(largest, _HIGHEST - 1)) + 1  # which must fit int32
    low, high = bisect(sort_keys, np.int64(least), high, size, 2 * size)
    n_left = np.uint64(0)
    for j in range(n):
        values[n_left], items[n_left] = values[j], items[j]
        n_left += np.uint64(sort_keys[j] >= low)
    sort_keys = sort_keys[:n_left]
    low, high = bisect(sort_keys, low, high, size, size)
    n_kept, n_equal = 0, size - count_at_least(sort_keys, np.int32(high))  # to be kept of the keys from `low` to `high`
    for j in range(n_left):
        is_equal = low <= sort_keys[j] < high
        # NaNs may have keys from _HIGHEST on.
        if n_kept < size and (sort_keys[j] >= high or (is_equal and n_equal > 0)):
            n_equal -= is_equal
            best[n_kept], best_items[n_kept] = values[j], items[j]
            n_kept += 1


@njit(nogil=True)
def keep_highest(labels, found, sort_keys, kept_labels, kept):
    """Write the labels with the highest scores to `kept_labels`, and their columns of `found` to `kept`, in no order.

    labels int32 (M,), -1 for none. found float32 (r, M) : row 0 has the scores. kept_labels int32 (n,), filled up with
    -1, and kept (r, n), with 0. sort_keys int32 (M,) is scratch. Returns the lowest score among those kept, or -inf if
    there are fewer than n.
    """
    scores, bits, size = found[0], found[0].view(np.int32), kept_labels.size
    for j in range(labels.size):
        key = bits[j] ^ ((bits[j] >> np.int32(31)) & _HIGHEST)
        sort_keys[j] = key if labels[j] >= 0 and scores[j] > -np.inf else _LOWEST
    low, high = np.int64(_LOWEST) + 1, np.int64(_HIGHEST)
    if count_at_least(sort_keys, np.int32(low)) >= size:
        low, high = bisect(sort_keys, low, high, size, size)
    kept_labels[:], kept[:] = -1, ZERO
    n_kept, n_equal, least = 0, size - count_at_least(sort_keys, np.int32(high)), np.float32(np.inf)
    for j in range(labels.size):
        is_equal = low <= sort_keys[j] < high
        if sort_keys[j] >= high or (is_equal and n_equal > 0):
            n_equal -= is_equal
            kept_labels[n_kept] = labels[j]
            for r in range(found.shape[0]):
                kept[r, n_kept] = found[r, j]
            least = min(least, scores[j])
            n_kept += 1
    return least if n_kept == size else np.float32(-np.inf)
