"""Kernels that train the linear classifiers: one support vector machine per label, by dual coordinate descent.

Hsieh, Chang, Lin, Keerthi, Sundararajan 2008 (ICML), Algorithm 1 for the squared hinge, with overrelaxed steps
(Mangasarian, Musicant 1999). Shrinking is left out, as it would skip hardly any row. A classifier is trained on rows
that have its label, rows for which the label is a wrong candidate, and some drawn at random. It uses only features that
occur in rows with the label, or all features if asked for. First these entries are copied together, with new feature
numbers, so that rows and weights of a label fit a near cache while they are visited.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part
from ..intrinsics.elementary import HALF, ONE, ZERO
from ..intrinsics.llvm import CACHE_LINE, prefetch
from .copying import copy_into
from .linear_pairs import row_of
from .random import below, following

# Factor of a step: after ten passes, the distance to the optimum is half of that with factor 1
# (docs/decisions/candidates.md).
RELAXATION = np.float32(1.3)
AHEAD = 8  # rows by which prefetches are ahead of copies
DIGITS = 8  # bits of the number of a feature by which one pass sorts


@njit(nogil=True)
def _prefetch_entries(columns, values, start):
    """Prefetch the first two cache lines of a row, most of a short one; the processor prefetches the others itself."""
    for line in range(2):
        index = np.int64(start) + line * (CACHE_LINE // 4)
        prefetch(columns, index)
        prefetch(values, index)


@njit(nogil=True)
def gather(pairs, indptr, indices, data, known, ease, all_features, column_of, features, row_ptr, columns, values):
    """Copy the entries of the rows of a label together, negated for rows that lack it; return the number of features.

    Column 0 is the bias, the last entry of each row. Column c is features[c - 1]: first the `known` features, then
    others of rows with the label, or of all rows if `all_features`; entries of other features are left out. Bias and
    values are multiplied by `ease`. `column_of` (F,) is 0 everywhere before and after.
    """
    n_features, n = known.size, np.uint64(0)
    for j in range(known.size):
        features[j], column_of[known[j]] = known[j], j + 1
    for j in range(pairs.size):
        row = row_of(pairs[j]) if all_features else pairs[j]
        if row >= 0:
            for p in range(indptr[row], indptr[row + 1]):
                feature = indices[p]
                if column_of[feature] == 0:
                    features[n_features] = feature
                    n_features += 1
                    column_of[feature] = n_features
    for j in range(pairs.size):
        if j + AHEAD < pairs.size:
            _prefetch_entries(indices, data, indptr[row_of(pairs[j + AHEAD])])
        row, sign = pairs[j], ONE
        if row < 0:
            row, sign = -1 - row, -ONE
        row_ptr[j] = n
        for p in range(indptr[row], indptr[row + 1]):
            columns[n], values[n] = column_of[indices[p]], ease[1] * sign * data[p]
            n += np.uint64(columns[n] > 0)
        columns[n], values[n] = 0, ease[0] * sign
        n += np.uint64(1)
    row_ptr[pairs.size] = n
    for j in range(n_features):
        column_of[features[j]] = 0
    return n_features


@njit(nogil=True)
def inverse_curvature(values, diagonal):
    """Return 1 / (diagonal + squared norm of a row): the step of its dual variable per unit of gradient."""
    square = diagonal
    for value in values:
        square += value * value
    return ONE / square


@njit(nogil=True)
def descend(row_ptr, columns, values, diagonal, inverse, tolerance, max_passes, state, order, w, alpha):
    """Train one classifier: improve w (features + 1,) and the dual variables alpha (rows,) in place.

    Entries have the sign of their row, as `gather` writes them. diagonal (rows,) : 1 / (2 C weight) of each row.
    inverse (rows,) : `inverse_curvature`. order : the rows to visit, which is shuffled. state uint64 : seed of the
    orders of the passes.
    """
    for _ in range(max_passes):
        largest = ZERO
        state = following(state)
        other = below(state, order.size)
        for s in range(order.size):
            j = order[other]
            order[s], order[other] = j, order[s]
            if s + 1 < order.size:  # draw the next row now, so that it is prefetched
                state = following(state)
                other = s + 1 + below(state, order.size - s - 1)
                _prefetch_entries(columns, values, row_ptr[order[other]])
            first, last = row_ptr[j], row_ptr[j + 1]
            gradient = diagonal[j] * alpha[j] - ONE
            for p in range(first, last):
                gradient += w[columns[p]] * values[p]
            step = max(-RELAXATION * gradient * inverse[j], -alpha[j])
            if step != 0:
                alpha[j] += step
                largest = max(largest, abs(step))
                for p in range(first, last):
                    w[columns[p]] += step * values[p]
        if largest <= tolerance:
            break


@njit(nogil=True)
def count_of_fold(pairs, folds, fold):
    """Return the number of rows among a label's `pairs` that are in this fold."""
    n = 0
    for j in range(pairs.size):
        n += folds[row_of(pairs[j])] == fold
    return n


@njit(nogil=True)
def leave_out(pairs, folds, fold, all_features, row_ptr, columns, values, alpha, order, w, seen):
    """Remove the rows of a fold from w and alpha; return the number of other rows, which are listed first in `order`.

    folds int32 (n,) : the fold of each row. seen (features + 1,) : becomes True for features that `gather` would copy
    without the rows of the fold.
    """
    n_others = 0
    seen[:] = False
    seen[0] = True  # the bias
    for j in range(pairs.size):
        if folds[row_of(pairs[j])] == fold:
            for p in range(row_ptr[j], row_ptr[j + 1]):
                w[columns[p]] -= alpha[j] * values[p]
            alpha[j] = 0
        else:
            order[n_others] = j
            n_others += 1
            if pairs[j] >= 0 or all_features:
                for p in range(row_ptr[j], row_ptr[j + 1]):
                    seen[columns[p]] = True
    return n_others


@njit(nogil=True)
def write_margins(
    pairs, folds, fold, held_out_index, label, row_ptr, columns, values, w, seen, smallest, held_out_labels, margins
):
    """Write the margins of the rows of a fold among a label's `pairs`, where `held_out_labels` (h, m) has the label.

    Weights of features that are not `seen`, and weights of at most `smallest` in size, count as 0.
    """
    for j in range(pairs.size):
        row, sign = pairs[j], ONE
        if row < 0:
            row, sign = -1 - row, -ONE
        if folds[row] != fold:
            continue
        h = held_out_index[row]
        margin = ZERO
        for p in range(row_ptr[j], row_ptr[j + 1]):
            column = columns[p]
            if column == 0 or (seen[column] and abs(w[column]) > smallest):
                margin += w[column] * values[p]
        for k in range(held_out_labels.shape[1]):
            if held_out_labels[h, k] == label:
                margins[h, k] = sign * margin


@njit(nogil=True)
def score_folds(
    pairs, label, folds, n_folds, held_out_index, all_features, row_ptr, columns, values, diagonal, inverse, tolerance,
    max_passes, more_passes, order, w, alpha, seen, smallest, held_out_labels, margins,
):  # fmt: skip
    """Write the margins of the rows of each fold, by a classifier trained on the other rows.

    Training for a fold starts from the solution for the fold before; the last solution stays in w and alpha. Weights of
    at most `smallest` in size count as 0. Returns how many passes training on all rows, from this solution, may take.
    """
    n_passes = max_passes
    for fold in range(n_folds):
        if count_of_fold(pairs, folds, fold) == 0:
            continue
        n_others = leave_out(pairs, folds, fold, all_features, row_ptr, columns, values, alpha, order, w, seen)
        if n_others > 0:
            descend(
                row_ptr, columns, values, diagonal, inverse, tolerance, n_passes, np.uint64(label), order[:n_others],
                w, alpha,
            )  # fmt: skip
            write_margins(
                pairs, folds, fold, held_out_index, label, row_ptr, columns, values, w, seen, smallest,
                held_out_labels, margins,
            )  # fmt: skip
            n_passes = more_passes
    return n_passes


@njit(nogil=True)
def sort_features(features, weights, spare_features, spare_weights, counts, n_features):
    """Sort features and their weights by the numbers of the features, below `n_features`; spare arrays are scratch."""
    shift = 0
    while n_features >> shift > 0:
        counts[:] = 0
        for j in range(features.size):
            counts[(features[j] >> shift) & (counts.size - 1)] += 1
        n = 0
        for digit in range(counts.size):
            n, counts[digit] = n + counts[digit], n
        for j in range(features.size):
            digit = (features[j] >> shift) & (counts.size - 1)
            spare_features[counts[digit]], spare_weights[counts[digit]] = features[j], weights[j]
            counts[digit] += 1
        copy_into(features, spare_features)
        copy_into(weights, spare_weights)
        shift += DIGITS


@kernel_of_part()
def solve(
    part, n_parts, labels, starts, pairs, indptr, indices, data, weight, known_ptr, known_features, known_weights, ease,
    all_features, C, tolerance, max_passes, more_passes, learns_all, smallest, n_features, most_rows, most_entries,
    out_ptr, out_features, out_weights, counts, bias, folds, n_folds, held_out_index, held_out_labels, margins,
):  # fmt: skip
    """Train the classifiers of `labels`; a part has every n_parts-th of them.

    Label l has the pairs from starts[l] to starts[l + 1] (`write_pairs`). X (indptr, indices, data) has rows of norm 1;
    `weight` float32 (n,) are their sample weights. Training starts from bias[l] and, for known_features from
    known_ptr[l] to known_ptr[l + 1], known_weights. A distance d from this start costs (d / ease)^2 / 2, by `ease`
    float32 (L, 2) of bias and weights. Weights of label l that are larger than `smallest` are written from out_ptr[l]
    on, by ascending feature, at most out_ptr[l + 1] - out_ptr[l] of them; counts[l] becomes their number.

    folds, held_out_index int32 (n,) : the fold of each held-out row, and its index among these rows; -1 for others;
    (0,) for no held-out rows. For each fold, a classifier is trained on the rows of all others, and writes the
    `margins` of the `held_out_labels` (h, m) of the fold, for pairs of the label. There are no known features then. If
    `learns_all`, it is then trained on all rows. The first training takes at most `max_passes` passes, each later one
    `more_passes`.
    """
    # Unsigned, as Numba would test the sign of each index (docs/decisions/kernels.md).
    unsigned_ptr, unsigned_indices = indptr.view(np.uint64), indices.view(np.uint32)
    column_of, digits = np.zeros(n_features, np.int32), np.empty(1 << DIGITS, np.int64)
    features, w = np.empty(n_features, np.int32), np.empty(n_features + 1, np.float32)
    spare_features, spare_w = np.empty(n_features, np.int32), np.empty(n_features, np.float32)
    seen = np.empty(n_features + 1, np.bool_)
    row_ptr, diagonal = np.empty(most_rows + 1, np.uint64), np.empty(most_rows, np.float32)
    alpha, inverse = np.empty(most_rows, np.float32), np.empty(most_rows, np.float32)
    order = np.empty(most_rows, np.int32)
    columns, values = np.empty(most_entries, np.uint32), np.empty(most_entries, np.float32)
    for i in range(part, labels.size, n_parts):
        label = labels[i]
        of_label = pairs[starts[label] : starts[label + 1]]
        if of_label.size == 0:
            continue
        known = slice(known_ptr[label], known_ptr[label + 1])
        n = gather(
            of_label, unsigned_ptr, unsigned_indices, data, known_features[known], ease[label], all_features, column_of,
            features, row_ptr, columns, values,
        )  # fmt: skip
        size = of_label.size
        for j in range(size):
            diagonal[j], alpha[j] = HALF / (C * weight[row_of(of_label[j])]), ZERO
            inverse[j] = inverse_curvature(values[row_ptr[j] : row_ptr[j + 1]], diagonal[j])
        w[0], w[1 : n + 1] = bias[label] / ease[label, 0], 0
        for j in range(known.stop - known.start):
            w[1 + j] = known_weights[known.start + j] / ease[label, 1]
        n_passes = score_folds(
            of_label, label, folds, n_folds, held_out_index, all_features, row_ptr, columns, values,
            diagonal[:size], inverse, tolerance, max_passes, more_passes, order, w[: n + 1], alpha[:size],
            seen[: n + 1], smallest, held_out_labels, margins,
        )  # fmt: skip
        if not learns_all:
            continue
        for j in range(size):
            order[j] = j
        descend(
            row_ptr, columns, values, diagonal, inverse, tolerance, n_passes, np.uint64(label), order[:size], w,
            alpha,
        )  # fmt: skip
        bias[label] = ease[label, 0] * w[0]
        kept, first = 0, out_ptr[label]
        for j in range(n):
            value = ease[label, 1] * w[j + 1]
            if abs(value) > smallest:
                out_features[first + kept], out_weights[first + kept] = features[j], value
                kept += 1
        sort_features(
            out_features[first : first + kept], out_weights[first : first + kept], spare_features[:kept],
            spare_w[:kept], digits, n_features,
        )  # fmt: skip
        counts[label] = kept
