"""Kernels of the linear path: a support vector machine for each label, solved by dual coordinate descent.

Hsieh, Chang, Lin, Keerthi, Sundararajan 2008 (ICML), Algorithm 3: squared hinge, shrinking, random order. A label sees
only its own rows and those to which it was shortlisted in vain. Their entries are copied together first, with features
numbered anew, so that rows and weights of a label lie in a near cache while they are visited some ten times.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from .cpu_rows import FAST
from .kernel import kernel

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_FAR = np.float32(1e30)
_MULTIPLIER, _INCREMENT, _MASK = np.uint64(1664525), np.uint64(1013904223), np.uint64(0xFFFFFFFF)


@kernel()
def pair_starts(label_ptr, label_index, shortlist, weight, indptr, starts, entries):
    """Write into `starts` (L + 1,) where the pairs of each label begin, by label, and into `entries` their rows' ones.

    Both must be zeros.
    """
    for i in range(shortlist.shape[0]):
        if weight[i] > 0:
            length = indptr[i + 1] - indptr[i]
            for p in range(label_ptr[i], label_ptr[i + 1]):
                starts[label_index[p] + 1] += 1
                entries[label_index[p] + 1] += length
            for j in range(shortlist.shape[1]):
                if shortlist[i, j] >= 0:
                    starts[shortlist[i, j] + 1] += 1
                    entries[shortlist[i, j] + 1] += length
    for label in range(starts.size - 1):
        starts[label + 1] += starts[label]
        entries[label + 1] += entries[label]


@kernel()
def drop_true(label_ptr, label_index, shortlist):
    """Put -1 for the labels of a shortlist (n, M) that their row has."""
    for i in prange(shortlist.shape[0]):
        for p in range(label_ptr[i], label_ptr[i + 1]):
            for j in range(shortlist.shape[1]):
                if shortlist[i, j] == label_index[p]:
                    shortlist[i, j] = -1


@kernel()
def write_pairs(label_ptr, label_index, shortlist, weight, starts, pairs):
    """Write the rows of each label into `pairs`: i where row i has the label, -1 - i where it is shortlisted in vain.

    `starts` become the ends.
    """
    for i in range(shortlist.shape[0]):
        if weight[i] > 0:
            for p in range(label_ptr[i], label_ptr[i + 1]):
                pairs[starts[label_index[p]]] = i
                starts[label_index[p]] += 1
            for j in range(shortlist.shape[1]):
                if shortlist[i, j] >= 0:
                    pairs[starts[shortlist[i, j]]] = -1 - i
                    starts[shortlist[i, j]] += 1


@njit(nogil=True, fastmath=FAST)
def gather(pairs, indptr, indices, data, place, features, row_ptr, columns, values):
    """Copy the entries of a label's rows together; return how many features they have.

    `place` (F,) must be -1 everywhere and is so again at the end; `features` gets the features by their new numbers.
    """
    n_features, n = 0, 0
    for j in range(pairs.size):
        row = pairs[j] if pairs[j] >= 0 else -1 - pairs[j]
        row_ptr[j] = n
        for p in range(indptr[row], indptr[row + 1]):
            feature = indices[p]
            if place[feature] < 0:
                place[feature] = n_features
                features[n_features] = feature
                n_features += 1
            columns[n] = place[feature]
            values[n] = data[p]
            n += 1
    row_ptr[pairs.size] = n
    for j in range(n_features):
        place[features[j]] = -1
    return n_features


@njit(nogil=True, fastmath=FAST)
def descend(pairs, row_ptr, columns, values, cost, tolerance, max_passes, state, w, alpha, q, order):
    """Solve one label: w (features,) from zeros, last of it the bias; return the state of the random numbers.

    cost (rows,) : C times the weight of each row. alpha, q, order : scratch (rows,).
    """
    n, bias = pairs.size, w.size - 1
    for j in range(n):
        norm = _ONE
        for p in range(row_ptr[j], row_ptr[j + 1]):
            norm += values[p] * values[p]
        alpha[j], q[j], order[j] = _ZERO, norm + _HALF / cost[j], j
    active, limit = n, _FAR
    for _ in range(max_passes):
        highest, lowest = -_FAR, _FAR
        for s in range(active):
            state = (state * _MULTIPLIER + _INCREMENT) & _MASK
            other = s + np.int64((state * np.uint64(active - s)) >> np.uint64(32))
            order[s], order[other] = order[other], order[s]
        s = 0
        while s < active:
            j = order[s]
            sign = _ONE if pairs[j] >= 0 else -_ONE
            score = w[bias]
            for p in range(row_ptr[j], row_ptr[j + 1]):
                score += w[columns[p]] * values[p]
            gradient = sign * score - _ONE + _HALF / cost[j] * alpha[j]
            projected = gradient
            if alpha[j] == 0:
                if gradient > limit:
                    active -= 1
                    order[s], order[active] = order[active], order[s]
                    continue
                projected = min(gradient, _ZERO)
            highest, lowest = max(highest, projected), min(lowest, projected)
            if projected != 0:
                changed = max(alpha[j] - gradient / q[j], _ZERO)
                step = (changed - alpha[j]) * sign
                alpha[j] = changed
                w[bias] += step
                for p in range(row_ptr[j], row_ptr[j + 1]):
                    w[columns[p]] += step * values[p]
            s += 1
        if highest - lowest <= tolerance:
            if active == n:
                break
            active, limit = n, _FAR
        else:
            limit = highest if highest > 0 else _FAR
    return state


@kernel(fastmath=FAST)
def solve(
    labels, starts, pairs, indptr, indices, data, weight, C, tolerance, max_passes, smallest, n_features, most_rows,
    most_entries, n_threads, out_ptr, out_features, out_weights, counts, bias,
):  # fmt: skip
    """Solve the machines of `labels`; thread t takes every n_threads-th of them.

    Pairs of label l lie from starts[l] to starts[l + 1] (`write_pairs`); X (indptr, indices, data) has rows of norm 1,
    `weight` (n,) float32 weighs them. Weights of label l above `smallest` in size go to out_ptr[l] and after, features
    ascending, at most out_ptr[l + 1] - out_ptr[l] of them; how many, to counts[l].
    """
    for t in prange(n_threads):
        place = np.full(n_features, -1, np.int32)
        features, w = np.empty(n_features, np.int32), np.empty(n_features + 1, np.float32)
        row_ptr, alpha, q = (
            np.empty(most_rows + 1, np.int64),
            np.empty(most_rows, np.float32),
            np.empty(most_rows, np.float32),
        )
        order, cost = np.empty(most_rows, np.int32), np.empty(most_rows, np.float32)
        columns, values = np.empty(most_entries, np.int32), np.empty(most_entries, np.float32)
        for i in range(t, labels.size, n_threads):
            label = labels[i]
            own = pairs[starts[label] : starts[label + 1]]
            if own.size == 0:
                continue
            n = gather(own, indptr, indices, data, place, features, row_ptr, columns, values)
            for j in range(own.size):
                cost[j] = C * weight[own[j] if own[j] >= 0 else -1 - own[j]]
            w[: n + 1] = 0
            descend(
                own,
                row_ptr,
                columns,
                values,
                cost,
                tolerance,
                max_passes,
                np.uint64(label),
                w[: n + 1],
                alpha,
                q,
                order,
            )
            bias[label] = w[n]
            kept = 0
            for j in range(n):
                if abs(w[j]) > smallest:
                    features[kept], w[kept] = features[j], w[j]
                    kept += 1
            ranks, first = np.argsort(features[:kept]), out_ptr[label]
            for j in range(kept):
                out_features[first + j], out_weights[first + j] = features[ranks[j]], w[ranks[j]]
            counts[label] = kept


@kernel(fastmath=FAST)
def margins(indptr, indices, data, labels, starts, features, weights, bias, out):
    """Write the margin of each label in `labels` int32 (rows, M) into `out` float32; -1 where there is none.

    Weights of label l lie from starts[l] to starts[l + 1], their features ascending.
    """
    for i in prange(labels.shape[0]):
        for j in range(labels.shape[1]):
            label = labels[i, j]
            if label < 0:
                out[i, j] = -_ONE
                continue
            score = bias[label]
            low, end = starts[label], starts[label + 1]
            for p in range(indptr[i], indptr[i + 1]):
                feature, high = indices[p], end
                while low < high:
                    middle = (low + high) >> 1
                    if features[middle] < feature:
                        low = middle + 1
                    else:
                        high = middle
                if low < end and features[low] == feature:
                    score += weights[low] * data[p]
            out[i, j] = score
