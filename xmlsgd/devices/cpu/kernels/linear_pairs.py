"""Kernels that list the rows of each label for its linear classifier: its own, wrong candidates, and random ones."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part, range_of_part
from .copying import copy_into
from .random import below, hashed


@njit(nogil=True)
def paired_labels(row, candidates, held_out_index, held_out_labels):
    """Return the labels that a row is paired with beside its own: its candidates or, if held out, `held_out_labels`."""
    is_held_out = held_out_index.size > 0 and held_out_index[row] >= 0
    return held_out_labels[held_out_index[row]] if is_held_out else candidates[row]


@kernel_of_part()
def count_pairs(
    part, n_parts, label_ptr, label_index, candidates, held_out_index, held_out_labels, weight, indptr, counts, entries
):
    """Count the pairs of each label and the entries of their rows, int64 (n_parts, L), zeros before.

    Rows of weight 0 do not count. A row is paired with its own labels and its candidates int32 (n, M); a held-out row,
    which has an index in `held_out_index` (`solve`), with its held_out_labels int32 (h, m) in place of candidates. In
    both arrays, the row's own labels become -1, so that no pair occurs twice.
    """
    n_rows = candidates.shape[0]
    for i in range_of_part(n_rows, part, n_parts):
        first, last, length = label_ptr[i], label_ptr[i + 1], indptr[i + 1] - indptr[i]
        paired = paired_labels(i, candidates, held_out_index, held_out_labels)
        for p in range(first, last):
            for j in range(paired.size):
                if paired[j] == label_index[p]:
                    paired[j] = -1
        if weight[i] > 0:
            for p in range(first, last):
                counts[part, label_index[p]] += 1
                entries[part, label_index[p]] += length
            for label in paired:
                if label >= 0:
                    counts[part, label] += 1
                    entries[part, label] += length


@kernel_of_part()
def write_pairs(
    part, n_parts, label_ptr, label_index, candidates, held_out_index, held_out_labels, weight, starts, pairs
):
    """Write the rows of each label to `pairs`: i if row i has the label, -1 - i if the label is a wrong candidate.

    starts (n_parts, L) : where the pairs counted by `count_pairs` go; they become the ends.
    """
    n_rows = candidates.shape[0]
    for i in range_of_part(n_rows, part, n_parts):
        if weight[i] > 0:
            for p in range(label_ptr[i], label_ptr[i + 1]):
                pairs[starts[part, label_index[p]]] = i
                starts[part, label_index[p]] += 1
            for label in paired_labels(i, candidates, held_out_index, held_out_labels):
                if label >= 0:
                    pairs[starts[part, label]] = -1 - i
                    starts[part, label] += 1


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


@kernel_of_part()
def count_drawn(part, n_parts, starts, pairs, weight, indptr, n_draws, counts, entries):
    """Count the rows that `draw` adds to each label with pairs, and their entries, int64 (L,), zeros before."""
    drawn = np.empty(n_draws, np.int32)
    for label in range(part, counts.size, n_parts):
        of_label = pairs[starts[label] : starts[label + 1]]
        if of_label.size > 0:
            counts[label] = draw(label, of_label, weight, n_draws, drawn)
            for j in range(counts[label]):
                entries[label] += indptr[-drawn[j]] - indptr[-1 - drawn[j]]


@kernel_of_part()
def write_drawn(part, n_parts, starts, pairs, weight, n_draws, new_starts, out):
    """Write the pairs of each label, then the rows that `draw` adds, from new_starts[label] on."""
    drawn = np.empty(n_draws, np.int32)
    for label in range(part, starts.size - 1, n_parts):
        of_label, first = pairs[starts[label] : starts[label + 1]], new_starts[label]
        copy_into(out[first : first + of_label.size], of_label)
        if of_label.size > 0:
            n = draw(label, of_label, weight, n_draws, drawn)
            copy_into(out[first + of_label.size : first + of_label.size + n], drawn[:n])
