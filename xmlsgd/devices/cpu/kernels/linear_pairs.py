"""Kernels that list the rows of each label for its linear classifier: its own, wrong candidates, and random ones."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from .copying import copy_into
from .random import below, hashed


@njit(nogil=True)
def paired_labels(row, candidates, places, held_out_labels):
    """Return the labels that a row is paired with beside its own: its candidates or, if held out, `held_out_labels`."""
    return candidates[row] if places.size == 0 or places[row] < 0 else held_out_labels[places[row]]


@kernel()
def count_pairs(
    label_ptr, label_index, candidates, places, held_out_labels, weight, indptr, n_threads, counts, entries
):
    """Count the pairs of each label and the entries of their rows, int64 (threads, L), zeros before.

    Thread t counts its part of the rows; rows of weight 0 do not count. A row is paired with its own labels and its
    candidates int32 (n, M); a held-out row, which has an index in `places` (`solve`), with its held_out_labels
    int32 (h, m) in place of candidates. In both arrays, the row's own labels become -1, so that no pair occurs twice.
    """
    n_rows = candidates.shape[0]
    for t in prange(n_threads):
        for i in range(n_rows * t // n_threads, n_rows * (t + 1) // n_threads):
            first, last, length = label_ptr[i], label_ptr[i + 1], indptr[i + 1] - indptr[i]
            paired = paired_labels(i, candidates, places, held_out_labels)
            for p in range(first, last):
                for j in range(paired.size):
                    if paired[j] == label_index[p]:
                        paired[j] = -1
            if weight[i] > 0:
                for p in range(first, last):
                    counts[t, label_index[p]] += 1
                    entries[t, label_index[p]] += length
                for label in paired:
                    if label >= 0:
                        counts[t, label] += 1
                        entries[t, label] += length


@kernel()
def write_pairs(label_ptr, label_index, candidates, places, held_out_labels, weight, starts, pairs):
    """Write the rows of each label to `pairs`: i if row i has the label, -1 - i if the label is a wrong candidate.

    starts (threads, L) : where the pairs counted by `count_pairs` go; they become the ends.
    """
    n_rows, n_threads = candidates.shape[0], starts.shape[0]
    for t in prange(n_threads):
        for i in range(n_rows * t // n_threads, n_rows * (t + 1) // n_threads):
            if weight[i] > 0:
                for p in range(label_ptr[i], label_ptr[i + 1]):
                    pairs[starts[t, label_index[p]]] = i
                    starts[t, label_index[p]] += 1
                for label in paired_labels(i, candidates, places, held_out_labels):
                    if label >= 0:
                        pairs[starts[t, label]] = -1 - i
                        starts[t, label] += 1


@njit(nogil=True)
def row_of(pair):
    """Return the row of a pair, which is -1 - row if the row lacks the label."""
    return pair if pair >= 0 else -1 - pair


@njit(nogil=True)
def draw(label, of_label, weight, n_draws, drawn):
    """Draw random rows without a label: one from each of `n_draws` equal parts of the rows, unless paired already.

    of_label : the pairs of the label, ascending by row. weight (n,) : rows of weight 0 are not drawn. Writes -1 - row
    to `drawn` (n_draws,) for each; returns their number.
    """
    n, at, n_rows = 0, 0, weight.size
    for part in range(n_draws):
        first, last = n_rows * part // n_draws, n_rows * (part + 1) // n_draws
        if first == last:
            continue
        row = first + below(hashed(label, part), last - first)
        while at < of_label.size and row_of(of_label[at]) < row:
            at += 1
        if weight[row] > 0 and (at == of_label.size or row_of(of_label[at]) != row):
            drawn[n] = -1 - row
            n += 1
    return n


@kernel()
def count_drawn(starts, pairs, weight, indptr, n_draws, n_threads, counts, entries):
    """Count the rows that `draw` adds to each label with pairs, and their entries, int64 (L,), zeros before."""
    for t in prange(n_threads):
        drawn = np.empty(n_draws, np.int32)
        for label in range(t, counts.size, n_threads):
            of_label = pairs[starts[label] : starts[label + 1]]
            if of_label.size > 0:
                counts[label] = draw(label, of_label, weight, n_draws, drawn)
                for j in range(counts[label]):
                    entries[label] += indptr[-drawn[j]] - indptr[-1 - drawn[j]]


@kernel()
def write_drawn(starts, pairs, weight, n_draws, n_threads, new_starts, out):
    """Write the pairs of each label, then the rows that `draw` adds, from new_starts[label] on."""
    for t in prange(n_threads):
        drawn = np.empty(n_draws, np.int32)
        for label in range(t, starts.size - 1, n_threads):
            of_label, first = pairs[starts[label] : starts[label + 1]], new_starts[label]
            copy_into(out[first : first + of_label.size], of_label)
            if of_label.size > 0:
                n = draw(label, of_label, weight, n_draws, drawn)
                copy_into(out[first + of_label.size : first + of_label.size + n], drawn[:n])
