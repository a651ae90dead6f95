"""Kernels of the shortlist: the training rows most like a row, and the labels that these vote for.

A thread has a few arrays over all training rows and all labels, which it leaves as zeros after each row, so that a row
costs what it touches. The best of many are kept in a heap whose root is the worst of them.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from .cpu_rows import FAST
from .kernel import kernel

TINY = np.float32(1e-20)  # a similarity must exceed it


@njit(nogil=True, inline="always")
def replace_worst(values, items, value, item):
    """Put (value, item) in the place of the root of a heap, the smallest value, and let it sink to its place."""
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
def read_order(features, starts, order):
    """Write into `order` the places of a row's features, that with the shortest posting list first."""
    for i in range(features.size):
        length = starts[features[i] + 1] - starts[features[i]]
        j = i
        while j > 0:
            f = features[order[j - 1]]
            if starts[f + 1] - starts[f] <= length:
                break
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@kernel(fastmath=FAST)
def vote(
    indptr, indices, data, postings_ptr, postings_row, postings_value, label_ptr, label_index, weight, n_labels,
    n_neighbors, budget, own, n_threads, labels, votes,
):  # fmt: skip
    """Write the labels that the `n_neighbors` nearest training rows of each row vote for, and their shares.

    Rows (indptr, indices, data) and training rows (`postings_*`, by feature) are of norm 1; `label_ptr` and
    `label_index` are the labels of the training rows, `weight` (n,) float32 theirs. A neighbor votes with its weight
    times the square of the cosine. The posting lists of a row are read from the shortest on, until `budget` entries
    are. own : row i is training row own + i, which has no vote; -1 where they are no training rows. labels int32,
    votes float32 (rows, M), best first, filled up with -1 and 0; shares of the sum of all votes.
    """
    n_rows, n_train, size = indptr.size - 1, label_ptr.size - 1, labels.shape[1]
    most = 1
    for i in range(n_rows):
        most = max(most, indptr[i + 1] - indptr[i])
    for t in prange(n_threads):
        cosine, near = np.zeros(n_train, np.float32), np.empty(n_train, np.int32)
        share, named = np.zeros(n_labels, np.float32), np.empty(n_labels, np.int32)
        order = np.empty(most, np.int64)
        values, neighbors = np.empty(n_neighbors, np.float32), np.empty(n_neighbors, np.int32)
        best, best_labels = np.empty(size, np.float32), np.empty(size, np.int32)
        for i in range(n_rows * t // n_threads, n_rows * (t + 1) // n_threads):
            features, entries = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
            read_order(features, postings_ptr, order)
            n_near, n_read = 0, 0
            for j in range(features.size):
                first, last = postings_ptr[features[order[j]]], postings_ptr[features[order[j]] + 1]
                n_read += last - first
                if n_read > budget and n_near > 0:
                    break
                x = entries[order[j]]
                for p in range(first, last):
                    row = postings_row[p]
                    # Entries that cancel bring a row back to zero, and here once more: there may be no room for it.
                    if cosine[row] == 0 and n_near < n_train:
                        near[n_near] = row
                        n_near += 1
                    cosine[row] += x * postings_value[p]
            if own >= 0:
                cosine[own + i] = 0
            values[:], neighbors[:] = TINY, -1
            for j in range(n_near):
                row = near[j]
                if cosine[row] > values[0]:
                    replace_worst(values, neighbors, cosine[row], row)
                cosine[row] = 0
            total, n_named = np.float32(0), 0
            for j in range(n_neighbors):
                row = neighbors[j]
                if row >= 0:
                    power = weight[row] * values[j] * values[j]
                    if power == 0:
                        continue
                    total += power
                    for p in range(label_ptr[row], label_ptr[row + 1]):
                        label = label_index[p]
                        if share[label] == 0:
                            named[n_named] = label
                            n_named += 1
                        share[label] += power
            best[:], best_labels[:] = 0, -1
            for j in range(n_named):
                label = named[j]
                if share[label] > best[0]:
                    replace_worst(best, best_labels, share[label], label)
                share[label] = 0
            ranks = np.argsort(-best)
            for j in range(size):
                labels[i, j] = best_labels[ranks[j]]
                votes[i, j] = best[ranks[j]] / max(total, TINY)
