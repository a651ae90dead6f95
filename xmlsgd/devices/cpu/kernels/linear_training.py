"""Kernels that train the linear classifiers: one support vector machine a label, by dual coordinate descent.

Hsieh, Chang, Lin, Keerthi, Sundararajan 2008 (ICML), Algorithm 1 for the squared hinge, with overrelaxed steps
(Mangasarian, Musicant 1999) and without shrinking: of a label's rows it leaves hardly one out. A label sees only its
own rows, those that it is a wrong candidate of and some drawn at random, and of these, unless asked for all, only
features that its own rows have. Their entries are copied together first, with features numbered anew, so that rows and
weights of a label lie in a near cache while they are visited.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from ..intrinsics.llvm import prefetch
from .copying import copy_into
from .linear_pairs import row_of
from .random import below, following

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
# Of a step; ten passes get twice as near to the optimum as with 1 (docs/decisions/candidates.md).
RELAXATION = np.float32(1.3)
AHEAD = 8  # rows asked for before they are copied
CACHE_LINE = 64  # bytes
DIGITS = 8  # bits of a feature's number that are sorted by in one pass


@njit(nogil=True, inline="always")
def _prefetch_entries(columns, values, start):
    """Ask for the first two cache lines of a row, which are most of a short one; the processor guesses the others."""
    for line in range(2):
        offset = 4 * np.int64(start) + CACHE_LINE * line
        prefetch(columns.ctypes.data + offset)
        prefetch(values.ctypes.data + offset)


@njit(nogil=True)
def gather(pairs, indptr, indices, data, known, ease, all_features, place, features, row_ptr, columns, values):
    """Copy the entries of a label's rows together, negated where they lack the label; return how many features.

    Column 0 is the bias, the last entry of each row; column c is features[c - 1]: first those `known`, then others that
    rows with the label have, or all rows (`all_features`). All others are left out. `ease` multiplies bias and values.
    `place` (F,) must be 0 everywhere and is so again at the end.
    """
    n_features, n = known.size, np.uint64(0)
    for j in range(known.size):
        features[j], place[known[j]] = known[j], j + 1
    for j in range(pairs.size):
        row = row_of(pairs[j]) if all_features else pairs[j]
        if row >= 0:
            for p in range(indptr[row], indptr[row + 1]):
                feature = indices[p]
                if place[feature] == 0:
                    features[n_features] = feature
                    n_features += 1
                    place[feature] = n_features
    for j in range(pairs.size):
        if j + AHEAD < pairs.size:
            _prefetch_entries(indices, data, indptr[row_of(pairs[j + AHEAD])])
        row, sign = pairs[j], _ONE
        if row < 0:
            row, sign = -1 - row, -_ONE
        row_ptr[j] = n
        for p in range(indptr[row], indptr[row + 1]):
            columns[n], values[n] = place[indices[p]], ease[1] * sign * data[p]
            n += np.uint64(columns[n] > 0)
        columns[n], values[n] = 0, ease[0] * sign
        n += np.uint64(1)
    row_ptr[pairs.size] = n
    for j in range(n_features):
        place[features[j]] = 0
    return n_features


@njit(nogil=True)
def inverse_curvatures(row_ptr, values, diagonal, inverse):
    """Write 1 / (diagonal + squared norm) of each row into `inverse` (rows,), the length of a step of its variable."""
    for j in range(diagonal.size):
        square = diagonal[j]
        for p in range(row_ptr[j], row_ptr[j + 1]):
            square += values[p] * values[p]
        inverse[j] = _ONE / square


@njit(nogil=True)
def descend(row_ptr, columns, values, diagonal, inverse, tolerance, max_passes, state, order, w, alpha):
    """Solve one label: w (features + 1,) and alpha (rows,), starting from their values. Entries bear their row's sign.

    diagonal (rows,) : 1 / (2 C weight) of each row. inverse : `inverse_curvatures`. order : the rows that are visited;
    it is shuffled. state, uint64, chooses the orders of the passes.
    """
    for _ in range(max_passes):
        largest = _ZERO
        state = following(state)
        other = below(state, order.size)
        for s in range(order.size):
            j = order[other]
            order[s], order[other] = j, order[s]
            if s + 1 < order.size:  # the next row is drawn now, so that it is in the cache by its turn
                state = following(state)
                other = s + 1 + below(state, order.size - s - 1)
                _prefetch_entries(columns, values, row_ptr[order[other]])
            first, last = row_ptr[j], row_ptr[j + 1]
            gradient = diagonal[j] * alpha[j] - _ONE
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
    """Return how many rows of a label's `pairs` are of this fold."""
    n = 0
    for j in range(pairs.size):
        n += folds[row_of(pairs[j])] == fold
    return n


@njit(nogil=True)
def unlearn(pairs, folds, fold, all_features, row_ptr, columns, values, alpha, order, w, seen):
    """Remove the rows of a fold from w and alpha; return how many rows of `pairs` remain, listed first in `order`.

    Features that `gather` would leave out now get no weight and no values. folds int32 (n,) : of all rows. seen :
    scratch (features + 1,).
    """
    n_learned = 0
    seen[:] = False
    seen[0] = True  # the bias
    for j in range(pairs.size):
        if folds[row_of(pairs[j])] == fold:
            for p in range(row_ptr[j], row_ptr[j + 1]):
                w[columns[p]] -= alpha[j] * values[p]
            alpha[j] = 0
        else:
            order[n_learned] = j
            n_learned += 1
            if pairs[j] >= 0 or all_features:
                for p in range(row_ptr[j], row_ptr[j + 1]):
                    seen[columns[p]] = True
    for c in range(seen.size):
        if not seen[c]:
            w[c] = 0
    for p in range(row_ptr[pairs.size]):
        if not seen[columns[p]]:
            values[p] = 0
    return n_learned


@njit(nogil=True)
def write_margins(pairs, folds, fold, places, label, row_ptr, columns, values, w, smallest, labels, margins):
    """Write the margins of a fold's rows among a label's `pairs` where `labels` (h, m) of the row has the label.

    Weights up to `smallest` in size count as 0.
    """
    for j in range(pairs.size):
        row, sign = pairs[j], _ONE
        if row < 0:
            row, sign = -1 - row, -_ONE
        if folds[row] != fold:
            continue
        h = places[row]
        margin = _ZERO
        for p in range(row_ptr[j], row_ptr[j + 1]):
            if columns[p] == 0 or abs(w[columns[p]]) > smallest:
                margin += w[columns[p]] * values[p]
        for k in range(labels.shape[1]):
            if labels[h, k] == label:
                margins[h, k] = sign * margin


@njit(nogil=True)
def score_folds(
    pairs, label, folds, n_folds, places, all_features, row_ptr, columns, values, diagonal, inverse, tolerance,
    max_passes, order, w, alpha, saved_w, saved_alpha, saved_values, seen, smallest, labels, margins,
):  # fmt: skip
    """Write margins of each fold's rows by a machine that has unlearned them, from what all rows have taught.

    w, alpha and values are those of all rows, and change. With several folds `saved_w`, `saved_alpha` and
    `saved_values`, at least as long, keep them.
    """
    if n_folds > 1:
        copy_into(saved_w[: w.size], w)
        copy_into(saved_alpha[: alpha.size], alpha)
        copy_into(saved_values[: values.size], values)
    for fold in range(n_folds):
        if count_of_fold(pairs, folds, fold) == 0:
            continue
        if n_folds > 1:  # another fold has changed them
            copy_into(w, saved_w[: w.size])
            copy_into(alpha, saved_alpha[: alpha.size])
            copy_into(values, saved_values[: values.size])
        n_learned = unlearn(pairs, folds, fold, all_features, row_ptr, columns, values, alpha, order, w, seen)
        if n_learned > 0:
            inverse_curvatures(row_ptr, values, diagonal, inverse)
            descend(
                row_ptr, columns, values, diagonal, inverse, tolerance, max_passes, np.uint64(label),
                order[:n_learned], w, alpha,
            )  # fmt: skip
        else:  # such a label is untrained
            w[0] = -_ONE
        write_margins(pairs, folds, fold, places, label, row_ptr, columns, values, w, smallest, labels, margins)


@njit(nogil=True)
def sort_features(features, weights, spare_features, spare_weights, counts, n_features):
    """Sort features and their weights by the features' numbers, below `n_features`; the spare arrays are as long."""
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


@kernel()
def solve(
    labels, starts, pairs, indptr, indices, data, weight, known_ptr, known_features, known_weights, ease, all_features,
    C, tolerance, max_passes, smallest, n_features, most_rows, most_entries, n_threads, out_ptr, out_features,
    out_weights, counts, bias, folds, n_folds, places, held_out_labels, passes_without, margins,
):  # fmt: skip
    """Solve the machines of `labels`; thread t takes every n_threads-th of them.

    Pairs of label l lie from starts[l] to starts[l + 1] (`write_pairs`); X (indptr, indices, data) has rows of norm 1,
    `weight` (n,) float32 weighs them. The solution starts from bias[l] and the weights of known_features from
    known_ptr[l] to known_ptr[l + 1]; a distance d from it costs (d / ease)^2 / 2, by `ease` float32 (L, 2) of bias and
    weights. Weights of label l above `smallest` in size go to out_ptr[l] and after, features
    ascending, at most out_ptr[l + 1] - out_ptr[l] of them; how many, to counts[l].

    folds, places int32 (n,) : the fold of each held-out row and its place among them, -1 for others; (0,) for none.
    Classifiers that have unlearned the rows of a fold, by `passes_without` passes over the others, give the margins of
    `held_out_labels` (h, m) of these rows; they go to `margins` where the label has a pair of the row. There are no
    known features then.
    """
    # Numba would look at the sign of each index (docs/decisions/kernels.md).
    unsigned_ptr, unsigned_indices = indptr.view(np.uint64), indices.view(np.uint32)
    for t in prange(n_threads):
        place, digits = np.zeros(n_features, np.int32), np.empty(1 << DIGITS, np.int64)
        features, w = np.empty(n_features, np.int32), np.empty(n_features + 1, np.float32)
        spare_features, spare_w = np.empty(n_features, np.int32), np.empty(n_features, np.float32)
        seen = np.empty(n_features + 1, np.bool_)
        row_ptr, diagonal = np.empty(most_rows + 1, np.uint64), np.empty(most_rows, np.float32)
        alpha, inverse = np.empty(most_rows, np.float32), np.empty(most_rows, np.float32)
        order = np.empty(most_rows, np.int32)
        columns, values = np.empty(most_entries, np.uint32), np.empty(most_entries, np.float32)
        several = int(n_folds > 1)  # else nothing has to be restored
        saved_w, saved_alpha = np.empty(several * w.size, np.float32), np.empty(several * most_rows, np.float32)
        saved_values = np.empty(several * most_entries, np.float32)
        for i in range(t, labels.size, n_threads):
            label = labels[i]
            of_label = pairs[starts[label] : starts[label + 1]]
            if of_label.size == 0:
                continue
            known = slice(known_ptr[label], known_ptr[label + 1])
            n = gather(
                of_label, unsigned_ptr, unsigned_indices, data, known_features[known], ease[label], all_features, place,
                features, row_ptr, columns, values,
            )  # fmt: skip
            for j in range(of_label.size):
                diagonal[j] = _HALF / (C * weight[row_of(of_label[j])])
                alpha[j], order[j] = _ZERO, j
            w[0], w[1 : n + 1] = bias[label] / ease[label, 0], 0
            for j in range(known.stop - known.start):
                w[1 + j] = known_weights[known.start + j] / ease[label, 1]
            inverse_curvatures(row_ptr, values, diagonal[: of_label.size], inverse)
            descend(
                row_ptr, columns, values, diagonal, inverse, tolerance, max_passes, np.uint64(label),
                order[: of_label.size], w, alpha,
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
            score_folds(
                of_label, label, folds, n_folds, places, all_features, row_ptr, columns,
                values[: row_ptr[of_label.size]], diagonal[: of_label.size], inverse, tolerance, passes_without, order,
                w[: n + 1], alpha[: of_label.size], saved_w, saved_alpha, saved_values, seen[: n + 1], smallest,
                held_out_labels, margins,
            )  # fmt: skip
