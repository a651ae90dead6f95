"""Kernels of candidates as a whole: rows of norm 1, and the best labels of a row from its features in one call.

A single row is predicted in tens of microseconds, about the time in which a few small kernels are called. So one kernel
computes all steps of prediction, for one row and for many. Each step handles a block of rows, so that what it reads
stays in the nearest caches.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part, range_of_part
from ..intrinsics.elementary import FAST
from .cooccurrence import cooccurrence_of_row
from .exclusion import exclude_in_row
from .input_layer import activate_row
from .knn import NO_ROW, vote_of_row
from .linear_margins import margins_of_row
from .logits import best_of, log_probability, logits_of_row
from .selection import keep_highest
from .trees import trees_of_row

BLOCK = 64  # rows that a step of prediction handles one after another (docs/decisions/prediction.md)
DAMAGED = -2  # stands for all labels of a row if an index was damaged


@njit(nogil=True)
def unit_row(features, entries, feature_weights, out):
    """Multiply the entries of a row by the weights of their features, divide them by their norm, write them to `out`.

    If `feature_weights` is empty, entries are only divided by their norm. A row of zeros stays zero.
    """
    square = 0.0
    for p in range(features.size):
        factor = np.float64(feature_weights[features[p]]) if feature_weights.size > 0 else 1.0
        value = np.float64(entries[p]) * factor  # squares of float32 may overflow
        square += value * value
    norm = np.sqrt(square) if square > 0 else 1.0
    for p in range(features.size):
        factor = np.float64(feature_weights[features[p]]) if feature_weights.size > 0 else 1.0
        out[p] = np.float64(entries[p]) * factor / norm


@njit(nogil=True)
def unit_row_of(i, indptr, indices, data, feature_weights, row):
    """Return the features of row i, and its entries scaled by `unit_row`, which are written to `row`."""
    span = slice(indptr[i], indptr[i + 1])
    features, entries = indices[span], row[: span.stop - span.start]
    unit_row(features, data[span], feature_weights, entries)
    return features, entries


@kernel_of_part()
def unit_rows(part, n_parts, indptr, indices, data, feature_weights, out):
    """Write the entries of all rows, scaled by feature and of norm 1, into `out` float32 (nnz,)."""
    n_rows = indptr.size - 1
    for i in range_of_part(n_rows, part, n_parts):
        span = slice(indptr[i], indptr[i + 1])
        unit_row(indices[span], data[span], feature_weights, out[span])


@njit(nogil=True, fastmath=FAST)
def score_without_margins(logits, votes, cooccurrences, weights, least_vote, least_cooccurrence, out):
    """Write the scores of labels without margins and trees to `out` (M,); for the weights, see `best_candidates`."""
    for j in range(out.size):
        out[j] = (
            weights[0] * log_probability(logits[j])
            + weights[1] * np.log(max(votes[j], least_vote))
            + weights[3] * np.log(max(cooccurrences[j], least_cooccurrence))
            + weights[4]
        )


@kernel_of_part(fastmath=FAST)
def best_candidates(
    part, n_parts, indptr, indices, data, A, W0, scales0, b0, W, scales, b, feature_weights, postings_ptr, postings_row,
    postings_value, postings_scale, label_ptr, label_index, vote_weight, share_ptr, share_label, share_value,
    share_scale, table_starts, table_keys, table_values, table_scales, linear_bias, selection, stacking,
    label_frequency, tree_feature, tree_threshold, tree_value, n_excluding, exclusion_row, exclusion_table,
    exclusion_weight, least_vote, least_cooccurrence, n_voted, n_more, n_neighbors, budget, clean, items, item_values,
    n_kept, labels, scores,
):  # fmt: skip
    """Write the best labels of each row among its candidates to `labels` and `scores` (rows, k).

    Candidates are the `n_voted` labels with the most votes, and the `n_more` others that occur most with the features
    of the row. First all are scored by `selection`; the `n_kept` best of them are scored with margins and trees. The
    `n_excluding` best of them (at most n_kept) lower the scores of labels that they exclude.

    indptr, indices, data : the rows, not scaled. A (rows, H) : their activations; empty if W0 (F, H), `scales0` and b0,
    the input layer of a network of one hidden layer, are given. W, scales, b : the output layer (`logits`).
    feature_weights (F,) : for neighbors and co-occurrence only. For `postings_*`, `label_*`, `vote_weight`, `budget`
    and the scratch see `vote`; for `share_*`, `cooccurrence`; for `table_*` and `linear_bias`, `margins`; for
    `label_frequency` and `tree_*`, of which there may be none, `trees_of_row`; for `exclusion_*`, `exclude_in_row`.

    stacking float32 (5,) : the weights of the network's log probability, of the log of the share of votes, at least
    `least_vote`, of the margin, and of the log of the co-occurrence, at least `least_cooccurrence`; then the intercept.
    selection float32 (5,) : such weights without margins.
    A row for which a pointer or an index is out of range gets labels `DAMAGED`.
    """
    n_rows, m = indptr.size - 1, n_voted + n_more
    rows = range_of_part(n_rows, part, n_parts)
    most = 0
    for i in rows:
        most = max(most, indptr[i + 1] - indptr[i])
    size = min(BLOCK, len(rows))
    row, hidden = np.empty(most, np.float32), np.empty(b0.size, np.float32)
    proposed, sound = np.empty((size, m), np.int32), np.empty(size, np.bool_)
    # Of each candidate: its score (by `selection`, then the final one), logit, votes and co-occurrence.
    found, kept = np.empty((size, 4, m), np.float32), np.empty((size, 4, n_kept), np.float32)
    listed, margins = np.empty((size, n_kept), np.int32), np.empty((size, n_kept), np.float32)
    highest, least = np.empty((size, n_kept), np.float32), np.empty(size, np.float32)
    sort_keys = np.empty(m, np.int32)
    known, node, total = np.empty((5, n_kept), np.float32), np.empty(n_kept, np.uint32), np.empty(n_kept)
    order, placed, chance = np.empty(n_kept, np.int32), np.empty(n_kept, np.int32), np.empty(n_kept, np.float32)
    few = slice(0, n_excluding)
    found[:, 2, n_voted:] = 0
    for first in range(rows.start, rows.stop, BLOCK):
        n = min(BLOCK, rows.stop - first)
        # Votes of the neighbors.
        for j in range(n):
            features, entries = unit_row_of(first + j, indptr, indices, data, feature_weights, row)
            sound[j] = vote_of_row(
                features, entries, postings_ptr, postings_row, postings_value, postings_scale, label_ptr, label_index,
                vote_weight, n_neighbors, budget, budget, NO_ROW, clean[part], items[part], item_values[part],
                proposed[j, :n_voted], found[j, 2, :n_voted],
            )  # fmt: skip
        # Co-occurrence.
        for j in range(n):
            features, entries = unit_row_of(first + j, indptr, indices, data, feature_weights, row)
            sound[j] &= cooccurrence_of_row(
                features, entries, share_ptr, share_label, share_value, share_scale, clean[part, label_ptr.size - 1 :],
                items[part], item_values[part], proposed[j], n_voted, found[j, 3],
            )  # fmt: skip
        # Logits of the network.
        for j in range(n):
            a = hidden
            if b0.size > 0:
                span = slice(indptr[first + j], indptr[first + j + 1])
                activate_row(indices[span], data[span], W0, scales0, b0, a)
            else:
                a = A[first + j]
            logits_of_row(a, W, scales, b, proposed[j], found[j, 1])
        # The candidates that get margins and trees.
        for j in range(n):
            logits, votes, cooccurrences = found[j, 1], found[j, 2], found[j, 3]
            score_without_margins(logits, votes, cooccurrences, selection, least_vote, least_cooccurrence, found[j, 0])
            least[j] = -np.inf
            if exclusion_row.size > 0 and n_kept > n_excluding:
                # What it writes is overwritten: only the least score of a label that excludes others is wanted.
                least[j] = keep_highest(proposed[j], found[j], sort_keys, listed[j, few], kept[j, :, few])
            keep_highest(proposed[j], found[j], sort_keys, listed[j], kept[j])
            highest[j] = kept[j, 0]
        # Margins of the linear classifiers.
        for j in range(n):
            features, entries = unit_row_of(first + j, indptr, indices, data, feature_weights[:0], row)
            sound[j] &= margins_of_row(
                features, entries, listed[j], table_starts, table_keys, table_values, table_scales, linear_bias,
                margins[j],
            )  # fmt: skip
        # Stacking, trees, exclusion and the best labels.
        for j in range(n):
            out, logits, votes, cooccurrences = kept[j, 0], kept[j, 1], kept[j, 2], kept[j, 3]
            score_without_margins(logits, votes, cooccurrences, stacking, least_vote, least_cooccurrence, out)
            for c in range(n_kept):
                out[c] += stacking[2] * margins[j, c]
            if tree_feature.shape[0] > 0:
                trees_of_row(
                    listed[j], logits, votes, margins[j], cooccurrences, label_frequency, tree_feature,
                    tree_threshold, tree_value, known, node, total, out,
                )  # fmt: skip
            if exclusion_row.size > 0:
                exclude_in_row(
                    listed[j], highest[j], least[j], labels.shape[1], exclusion_row, exclusion_table, exclusion_weight,
                    order, placed, margins[j], logits, chance, out,
                )  # fmt: skip
            best_of(listed[j], out, labels[first + j], scores[first + j])
            if not sound[j]:
                labels[first + j, :] = DAMAGED
