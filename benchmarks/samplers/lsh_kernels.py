"""Kernels of locality-sensitive hashing: densified winner-take-all codes, tables of labels, what a row finds."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from xmlsgd.devices.cpu.compiling import kernel
from xmlsgd.devices.cpu.kernels.random import below, finalized, following

EMPTY = 255  # the code of a bin without an entry
ATTEMPTS = 100  # of a bin without an entry to find one that has some


@njit(nogil=True, inline="always")
def mixed(x):
    """Return 31 bits of the hash of x, int64."""
    return np.int64(finalized(x) >> np.uint32(1))


@kernel()
def dwta_codes(V, bins, codes):
    """Write into `codes` uint8 (n, N) which entry of each bin is the largest of a row of V float32 (n, H).

    bins int32 (N, m), m < 255 : the columns of each. Zeros count as absent. A bin without entries takes the code of
    another, which the hash of its number and of the attempt names (Chen and Shrivastava 2018, Algorithm 1); 0 where
    none is found.
    """
    n_bins, width = bins.shape
    for i in prange(V.shape[0]):
        for j in range(n_bins):
            best, largest = EMPTY, np.float32(-np.inf)
            for k in range(width):
                value = V[i, bins[j, k]]
                if value != 0 and value > largest:
                    best, largest = k, value
            codes[i, j] = best
        own = codes[i].copy()
        for j in range(n_bins):
            attempt = 0
            while codes[i, j] == EMPTY and attempt < ATTEMPTS:
                attempt += 1
                codes[i, j] = own[mixed(j * ATTEMPTS + attempt) % n_bins]
            if codes[i, j] == EMPTY:
                codes[i, j] = 0


@kernel()
def fill_tables(buckets, sequence, capacity, reservoir, seed, starts, members):
    """Put the labels of `sequence` int32 (L,) one after another into the tables.

    buckets int32 (T, L) : each label's in each table. A bucket takes `capacity` labels at most: with `reservoir` an
    even sample of all that came (Vitter 1985, algorithm R), else those that came last. starts int32 (T, n_buckets + 1)
    and members int32 (T, L) are written: bucket b of table t holds members[t, starts[t, b] : starts[t, b + 1]].
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
            place = n % room
            if reservoir and n >= room:
                state = following(state)
                place = below(state, n + 1)
            if place < room:
                members[t, first + place] = label


@kernel()
def retrieve(buckets, starts, members, n_labels, frequent, seed, n_threads, found):
    """Write the labels in the buckets of each row, int32 (T, B), into `found` int32 (B, wanted), filled up with -1.

    Tables are asked in turn, from one that the seed and the row choose, until enough labels are found; with `frequent`
    all are asked, and the labels that come most often are taken.
    """
    n_tables, (n_rows, wanted) = buckets.shape[0], found.shape
    for thread in prange(n_threads):
        times, labels = np.zeros(n_labels, np.int32), np.empty(n_labels, np.int32)
        of_count = np.empty(n_tables + 2, np.int64)
        for i in range(n_rows * thread // n_threads, n_rows * (thread + 1) // n_threads):
            n, first = 0, mixed(seed + i) % n_tables
            for j in range(n_tables):
                t = (first + j) % n_tables
                for p in range(starts[t, buckets[t, i]], starts[t, buckets[t, i] + 1]):
                    label = members[t, p]
                    if times[label] == 0:
                        labels[n] = label
                        n += 1
                    times[label] += 1
                if n >= wanted and not frequent:
                    break
            # Counting sort by falling number of times; equals stay in the order in which they were found.
            of_count[:] = 0
            for j in range(n):
                count = times[labels[j]] if frequent else 1
                of_count[n_tables - count + 1] += 1
            for c in range(n_tables + 1):
                of_count[c + 1] += of_count[c]
            found[i] = -1
            for j in range(n):
                count = times[labels[j]] if frequent else 1
                place = of_count[n_tables - count]
                of_count[n_tables - count] += 1
                if place < wanted:
                    found[i, place] = labels[j]
                times[labels[j]] = 0
