"""Kernels of candidates as a whole: rows of norm 1, and the best labels of a row from its features in one call.

A row by itself is answered in tens of microseconds, as long as a few calls of small kernels take to begin. So what a
batch could do step by step is done row by row here, for one row and for many alike.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from ..intrinsics.elementary import FAST
from .input_layer import activate_row
from .knn import vote_of_row
from .linear_margins import margins_of_row
from .logits import best_of_list, logits_of_row
from .trees import trees_of_row

DAMAGED = -2  # in place of a label


@njit(nogil=True)
def unit_row(features, entries, scale, out):
    """Write the entries float32 of a row, each times its feature's scale, into `out`, of norm 1; zeros stay zeros.

    An empty `scale` leaves the entries as they come.
    """
    square = 0.0
    for p in range(features.size):
        factor = np.float64(scale[features[p]]) if scale.size > 0 else 1.0
        value = np.float64(entries[p]) * factor  # squares of float32 may overflow
        square += value * value
    norm = np.sqrt(square) if square > 0 else 1.0
    for p in range(features.size):
        factor = np.float64(scale[features[p]]) if scale.size > 0 else 1.0
        out[p] = np.float64(entries[p]) * factor / norm


@kernel()
def unit_rows(indptr, indices, data, scale, out):
    """Write the entries of all rows, scaled by feature and of norm 1, into `out` float32 (nnz,)."""
    for i in prange(indptr.size - 1):
        span = slice(indptr[i], indptr[i + 1])
        unit_row(indices[span], data[span], scale, out[span])


@kernel(fastmath=FAST)
def best_listed(
    indptr, indices, data, A, W0, scales0, b0, W, scales, b, scale, postings_ptr, postings_row, postings_value, unit,
    label_ptr, label_index, weight, starts, keys, weights, factors, bias, stacking, frequency, feature, threshold,
    value, least_vote, n_scored, n_neighbors, budget, near, n_near, clean, items, values, n_threads, labels, scores,
):  # fmt: skip
    """Write the best labels of each row among the `n_scored` with the most votes into `labels` and `scores` (rows, k).

    Among `n_near` of these for a row whose nearest training row has a cosine above `near`.
    Rows (indptr, indices, data) as they come and their activations A (rows, H), or where W0 (F, H), `scales0` and b0
    are the input layer of a network of one hidden layer, none; `scale` (F,) weighs the features for the neighbors, but
    not for the margins. W, `scales` and b are
    the output layer (`logits`). `vote` says what `postings_*`, `unit`, `label_*`, `weight` and the scratch are,
    `linear_margins` what the tables (`starts`, `keys`, `weights`), their scales `factors` and `bias` are, and
    `best_of_list` how the best are found.
    stacking float32 (4,): weights of the network's log probability, of the log of the share of votes,
    at least `least_vote`, and of the margin, and the intercept. Where there are trees, they score in its place:
    `trees_of_row` says what `frequency`, `feature`, `threshold` and `value` are. A row that met a pointer or an index
    to nothing gets labels `DAMAGED`.
    """
    n_rows = indptr.size - 1
    most = 0
    for i in range(n_rows):
        most = max(most, indptr[i + 1] - indptr[i])
    for t in prange(n_threads):
        row, hidden = np.empty(most, np.float32), np.empty(b0.size, np.float32)
        all_listed, all_bounds = np.empty(n_scored, np.int32), np.empty(n_scored, np.float32)
        all_margins, all_logits = np.empty(n_scored, np.float32), np.empty(n_scored, np.float32)
        all_known, node, total = np.empty(4 * n_scored, np.float32), np.empty(n_scored, np.uint32), np.empty(n_scored)
        for i in range(n_rows * t // n_threads, n_rows * (t + 1) // n_threads):
            features = indices[indptr[i] : indptr[i + 1]]
            given, entries = data[indptr[i] : indptr[i + 1]], row[: features.size]
            unit_row(features, given, scale, entries)
            a = hidden
            if b0.size > 0:
                activate_row(features, given, W0, scales0, b0, a)
            else:
                a = A[i]
            sound, _, m = vote_of_row(
                features, entries, postings_ptr, postings_row, postings_value, unit, label_ptr, label_index, weight,
                n_neighbors, budget, -1, near, n_near, clean[t], items[t], values[t], all_listed, all_bounds,
            )  # fmt: skip
            listed, bounds, margins, logits = all_listed[:m], all_bounds[:m], all_margins[:m], all_logits[:m]
            unit_row(features, given, scale[:0], entries)
            sound &= margins_of_row(features, entries, listed, starts, keys, weights, factors, bias, margins)
            share = stacking[0]
            if feature.shape[0] > 0:
                logits_of_row(a, W, scales, b, listed, logits)
                trees_of_row(
                    listed, logits, bounds, margins, frequency, feature, threshold, value,
                    all_known[: 4 * m].reshape(4, m), node[:m], total[:m], bounds,
                )  # fmt: skip
                share *= 0  # the network has had its say
            else:
                for j in range(m):
                    bounds[j] = (
                        stacking[1] * np.log(max(bounds[j], least_vote)) + stacking[2] * margins[j] + stacking[3]
                    )
            best_of_list(a, W, scales, b, listed, bounds, share, labels[i], scores[i])
            if not sound:
                labels[i, :] = DAMAGED
