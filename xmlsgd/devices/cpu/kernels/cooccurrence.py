"""Kernels of co-occurrence: labels that often occur with a feature, and the candidates of a row that follow."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part, range_of_part
from ..intrinsics.elementary import FAST, ONE, ZERO
from .selection import keep_best


@kernel_of_part(fastmath=FAST)
def count_labels(
    part, n_parts, starts, rows, label_ptr, label_index, weight, bounds, room, clean, named, values, totals, labels,
    shares,
):  # fmt: skip
    """Write the labels that occur most often with each feature, and their shares of the rows with the feature.

    Feature f occurs in rows[starts[f] : starts[f + 1]]; row i has the labels from label_ptr[i] to label_ptr[i + 1] and
    the sample weight weight[i]. totals[f] float32 becomes the sum of the weights. The labels int32 and shares float32
    of f are written from room[f] to room[f + 1], filled up with -1 and 0. The part handles features bounds[part]
    to bounds[part + 1]. Scratch: `clean` float64 (n_parts, L), zeros before and after, `named` int32 and `values`
    float32 (n_parts, L + 1).
    """
    share, found, found_shares = clean[part], named[part], values[part]
    for f in range(bounds[part], bounds[part + 1]):
        total, n = 0.0, np.int64(0)  # float64: float32 counts to 2^24
        for p in range(starts[f], starts[f + 1]):
            row = rows[p]
            if not weight[row] > 0:
                continue
            total += weight[row]
            for q in range(label_ptr[row], label_ptr[row + 1]):
                label = label_index[q]
                found[n] = label
                n += share[label] == 0
                share[label] += weight[row]
        for j in range(n):
            found_shares[j] = share[found[j]] / total
            share[found[j]] = 0.0
        span = slice(room[f], room[f + 1])
        keep_best(found_shares, found, n, shares[span], labels[span])
        totals[f] = total


@njit(nogil=True, fastmath=FAST)
def cooccurrence_of_row(
    features, entries, share_ptr, share_label, share_value, share_scale, clean, named, values, listed, n, out
):
    """Add the labels that occur most with the features of one row to its candidates; see `cooccurrence`.

    The first `n` of `listed` int32 (M,) are given. Scratch: `clean` (L,), zeros before and after; `named` and `values`
    of more than L elements. Returns whether all pointers and indices are in range; others are never followed.
    """
    sound, total, n_named = True, ZERO, np.uint64(0)
    for j in range(features.size):
        first, last = share_ptr[features[j]], share_ptr[features[j] + 1]
        if not 0 <= first <= last <= share_label.size:
            sound = False
            continue
        size = abs(entries[j])
        total += size
        size *= share_scale[features[j]]
        # Unsigned, as Numba would test the sign of each index (docs/decisions/kernels.md).
        for p in range(np.uint64(first), np.uint64(last)):
            label, value = np.uint32(share_label[p]), size * np.float32(share_value[p])
            if label >= clean.size:
                sound = False
            elif value > 0:
                before = clean[label]
                named[n_named] = label
                n_named += np.uint64(before == 0)
                clean[label] = before + value
    part = ONE / total if total > 0 else ZERO
    for j in range(n):
        out[j] = ZERO
        if listed[j] >= 0:
            out[j] = clean[listed[j]] * part
            clean[listed[j]] = ZERO
    n_found = np.int64(0)
    for j in range(n_named):
        label = named[j]
        named[n_found], values[n_found] = label, clean[label] * part
        n_found += clean[label] > 0
        clean[label] = ZERO
    keep_best(values, named, n_found, out[n:], listed[n:])
    return sound


@kernel_of_part(fastmath=FAST)
def cooccurrence(
    part, n_parts, indptr, indices, data, share_ptr, share_label, share_value, share_scale, clean, named, values,
    n_given, listed, out, sound,
):  # fmt: skip
    """Add the labels that occur most with the features of each row to its candidates `listed` int32 (rows, M).

    The first `n_given` of a row are given, -1 for none; the others are written in no order, filled up with -1.
    out : the co-occurrence of row and label, float32 (rows, M): the mean of the label's shares times `share_scale` (F,)
    over the features of the row, weighted by the size of their entries. Feature f has the labels `share_label` int32
    and shares `share_value` float32 from share_ptr[f] to share_ptr[f + 1]. clean (n_parts, L), named and values
    (n_parts, L + 1) are scratch. sound bool (rows,) : what `cooccurrence_of_row` returns.
    """
    n_rows = indptr.size - 1
    for i in range_of_part(n_rows, part, n_parts):
        span = slice(indptr[i], indptr[i + 1])
        sound[i] = cooccurrence_of_row(
            indices[span], data[span], share_ptr, share_label, share_value, share_scale, clean[part], named[part],
            values[part], listed[i], n_given, out[i],
        )  # fmt: skip
