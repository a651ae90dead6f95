"""Kernels of the k-NN index: the nearest training rows of a row, and the labels that these vote for.

Each thread has a few arrays over all training rows and all labels. It resets only the elements that it has used, so
that the time for a row does not depend on their length. Memory is prefetched, and conditions that are hard to predict
are computed without branches: a cache miss or a wrongly predicted branch takes longer than most of the work here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel, kernel_of_part, range_of_part
from ..intrinsics.elementary import FAST, ZERO
from ..intrinsics.llvm import prefetch
from .selection import keep_best

TINY = np.float32(1e-20)  # similarities up to it count as none
SHORT_ROW = 128  # with more features, counting sort is faster than insertion sort
NO_ROW = np.int64(-1)  # in place of the number of a training row


@kernel()
def write_postings(indptr, indices, data, first, postings_ptr, places, postings_row, postings_value):
    """Write the entries of rows (indptr, indices, data) by feature: rows and values of each feature.

    postings_row int32, postings_value float32. Row indices begin with `first`. Feature f has room from postings_ptr[f]
    to postings_ptr[f + 1]; features without room and stored zeros are left out. places (F,) : where the next row of
    each feature goes; they become the ends.
    """
    for i in range(indptr.size - 1):
        for p in range(indptr[i], indptr[i + 1]):
            feature = indices[p]
            at = places[feature]
            if at < postings_ptr[feature + 1] and data[p] != 0:
                postings_row[at], postings_value[at] = first + i, data[p]
                places[feature] = at + 1


@njit(nogil=True)
def read_order(features, postings_ptr, n_entries, longest, lengths, order):
    """Sort the features of a row by the lengths of their posting lists, shortest first; equal lengths keep their order.

    Writes indices of features to `order`, and the lengths in this order to `lengths`. Returns whether all lists are at
    most `longest` long and lie within the `n_entries` entries of the index.
    """
    for i in range(features.size):
        first, last = postings_ptr[features[i]], postings_ptr[features[i] + 1]
        length = last - first
        if not 0 <= first <= last <= n_entries or length > longest:
            return False
        lengths[i], order[i] = length, i
    if features.size > SHORT_ROW:
        _count_sort(lengths, order, longest)
        return True
    for i in range(1, features.size):
        length, j = lengths[i], i
        while j > 0 and lengths[j - 1] > length:
            lengths[j], order[j] = lengths[j - 1], order[j - 1]
            j -= 1
        lengths[j], order[j] = length, i
    return True


@njit(nogil=True)
def _count_sort(lengths, order, most):
    """Sort lengths, in [0, most], in place, and write their former indices to `order`; equal ones keep their order."""
    places, given = np.zeros(most + 2, np.int64), lengths.copy()
    for length in given:
        places[length + 1] += 1
    for length in range(most):
        places[length + 1] += places[length]
    for i in range(order.size):
        at = places[given[i]]
        lengths[at], order[at] = given[i], i
        places[given[i]] = at + 1


@njit(nogil=True, fastmath=FAST)
def vote_of_row(
    features, entries, postings_ptr, postings_row, postings_value, postings_scale, label_ptr, label_index, vote_weight,
    n_neighbors, longest, budget, own, clean, items, item_values, labels, votes,
):  # fmt: skip
    """Write the labels that the nearest training rows of one row vote for, and their shares; see `vote`.

    features int32, entries float32 : the row. own : its number if it is a training row, else -1. clean, items,
    item_values : scratch of a thread (`scratch_shapes`). Returns whether all pointers and indices are in range; others
    are never followed.
    """
    n_train = label_ptr.size - 1
    cosine, share = clean[:n_train], clean[n_train:]
    met, named = items[: item_values.size], items[item_values.size :]
    sound = True
    order, lengths = np.empty(features.size, np.int64), np.empty(features.size, np.int64)
    nearest, neighbors = np.empty(n_neighbors, np.float32), np.empty(n_neighbors, np.int32)
    if not read_order(features, postings_ptr, postings_row.size, longest, lengths, order):
        labels[:], votes[:] = -1, ZERO
        return False
    n_lists, n_read = 0, 0
    while n_lists < features.size and (n_read == 0 or n_read + lengths[n_lists] <= budget):
        n_read += lengths[n_lists]
        first = postings_ptr[features[order[n_lists]]]
        prefetch(postings_row, first)
        prefetch(postings_value, first)
        n_lists += 1
    n_met = np.uint64(0)
    for j in range(n_lists):
        feature = features[order[j]]
        x = entries[order[j]] * postings_scale[min(feature, postings_scale.size - 1)]
        # Unsigned, as Numba would test the sign of each index (docs/decisions/kernels.md).
        for p in range(np.uint64(postings_ptr[feature]), np.uint64(postings_ptr[feature + 1])):
            row = np.uint32(postings_row[p])
            if not row < n_train:
                sound = False
                continue
            before = cosine[row]
            met[n_met] = row
            n_met += np.uint64(before == 0)
            cosine[row] = before + x * np.float32(postings_value[p])
    if own >= 0:
        cosine[own] = 0
    n_kept = np.uint64(0)
    for j in range(n_met):
        row = np.uint32(met[j])
        met[n_kept], item_values[n_kept] = row, cosine[row]
        n_kept += np.uint64(cosine[row] > TINY)
        cosine[row] = 0
    n_found = np.int64(n_kept)
    keep_best(item_values, met, n_found, nearest, neighbors)
    for j in range(min(n_found, n_neighbors)):
        prefetch(label_ptr, neighbors[j])
        prefetch(vote_weight, neighbors[j])
    for j in range(min(n_found, n_neighbors)):
        prefetch(label_index, label_ptr[neighbors[j]])
    total, n_named = ZERO, np.uint64(0)
    for j in range(min(n_found, n_neighbors)):
        row = neighbors[j]
        power = vote_weight[row] * nearest[j] * nearest[j]
        first, last = label_ptr[row], label_ptr[row + 1]
        if not 0 <= first <= last <= label_index.size:
            sound = False
            continue
        if not power > 0:
            continue
        total += power
        for p in range(first, last):
            label = np.uint32(label_index[p])
            if label >= share.size:
                sound = False
                continue
            before = share[label]
            named[n_named] = label
            n_named += np.uint64(before == 0)
            share[label] = before + power
    for j in range(n_named):
        item_values[j] = share[named[j]] / total
        share[named[j]] = 0
    keep_best(item_values, named, n_named, votes, labels)
    return sound


def scratch_shapes(n_train: int, n_labels: int, longest: int, n_threads: int) -> tuple[tuple[int, int], ...]:
    """Return the shapes of scratch: `clean` float32, zeros before and after, `items` int32, `item_values` float32."""
    room = max(n_train, longest, n_labels) + 1  # one more, as an item is written before a test keeps it
    return (n_threads, n_train + n_labels), (n_threads, room + n_labels + 1), (n_threads, room)


@kernel_of_part(fastmath=FAST)
def vote(
    part, n_parts, indptr, indices, data, postings_ptr, postings_row, postings_value, postings_scale, label_ptr,
    label_index, vote_weight, n_neighbors, longest, budget, own, clean, items, item_values, labels, votes, sound,
):  # fmt: skip
    """Write the labels that the `n_neighbors` nearest training rows of each row vote for, and their shares.

    Rows (indptr, indices, data) and training rows (`postings_*`, by feature, values of feature f times
    postings_scale[f], or times the only scale) have norm 1. A training row has the labels from label_ptr[row] to
    label_ptr[row + 1] of `label_index`, and votes for them with `vote_weight` float32 (n,) times the square of the
    cosine.
    Posting lists of a row, none longer than `longest`, are read from the shortest on, until `budget` entries have been
    read. own : row i is training row own + i, which does not vote; -1 if the rows are no training rows.

    labels int32, votes float32 (rows, M) : in no order, filled up with -1 and 0; votes are shares of the sum of all.
    sound bool (rows,) : what `vote_of_row` returns.
    """
    n_rows = indptr.size - 1
    for i in range_of_part(n_rows, part, n_parts):
        sound[i] = vote_of_row(
            indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]], postings_ptr, postings_row,
            postings_value, postings_scale, label_ptr, label_index, vote_weight, n_neighbors, longest, budget,
            own + i if own >= 0 else NO_ROW, clean[part], items[part], item_values[part], labels[i], votes[i],
        )  # fmt: skip
