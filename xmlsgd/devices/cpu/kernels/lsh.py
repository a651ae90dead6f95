"""Kernels of locality-sensitive hashing: tables of labels, and what a row finds in them."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from .random import below, finalized, following


@njit(nogil=True, inline="always")
def mixed(x):
    """Return 31 bits of the hash of x, int64."""
    return np.int64(finalized(x) >> np.uint32(1))


@kernel()
def fill_tables(buckets, sequence, capacity, seed, starts, members):
    """Put the labels of `sequence` int32 (L,) one after another into the tables.

    buckets int32 (T, L) : each label's in each table. A bucket takes `capacity` labels at most, an even sample of all
    that came (Vitter 1985, algorithm R). starts int32 (T, n_buckets + 1) and members int32 (T, L) are written: bucket b
    of table t holds members[t, starts[t, b] : starts[t, b + 1]].
    """
    n_buckets = starts.shape[1] - 1
    for t in prange(buckets.shape[0]):
        seen, state = np.zeros(n_buckets, np.int32), np.uint64(mixed(seed + t))
        starts[t] = 0
        for label in range(buckets.shape[1]):
            starts[t, buckets[t, label] + 1] += 1
        for b in range(n_buckets):
            starts[t, b + 1] = starts[t, b] + min(starts[t, b + 1], capacity)
        for label in sequence:
            b = buckets[t, label]
            first, n = starts[t, b], seen[b]
            room = starts[t, b + 1] - first
            seen[b] += 1
            place = n
            if n >= room:
                state = following(state)
                place = below(state, n + 1)
            if place < room:
                members[t, first + place] = label


@kernel()
def retrieve(buckets, starts, members, n_labels, seed, n_threads, found):
    """Write the labels in the buckets of each row, int32 (T, B), into `found` int32 (B, wanted), filled up with -1.

    Tables are asked in turn, from one that the seed and the row choose, until enough labels are found.
    """
    n_tables, (n_rows, wanted) = buckets.shape[0], found.shape
    for thread in prange(n_threads):
        seen, labels = np.zeros(n_labels, np.bool_), np.empty(n_labels, np.int32)
        for i in range(n_rows * thread // n_threads, n_rows * (thread + 1) // n_threads):
            n, first = 0, mixed(seed + i) % n_tables
            for j in range(n_tables):
                t = (first + j) % n_tables
                for p in range(starts[t, buckets[t, i]], starts[t, buckets[t, i] + 1]):
                    label = members[t, p]
                    if not seen[label]:
                        labels[n], seen[label] = label, True
                        n += 1
                if n >= wanted:
                    break
            found[i] = -1
            found[i, : min(n, wanted)] = labels[: min(n, wanted)]
            for j in range(n):
                seen[labels[j]] = False
