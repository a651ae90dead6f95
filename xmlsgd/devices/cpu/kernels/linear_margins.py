"""Kernels that predict with the linear classifiers: hash tables of the weights of labels, and margins.

Where labels have weights for many of all features, these are a dense matrix, which is smaller and faster to read.

Otherwise, each label has a hash table of buckets with eight slots. The weight of a feature is in the bucket to which
its hash leads, or in the next one that had room. The keys of a bucket are compared at once, so that no branch depends
on whether there is a weight, which is hard to predict. Buckets of a label are prefetched while the label before it is
scored.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel, kernel_of_part, range_of_part
from ..intrinsics.elementary import FAST, ZERO
from ..intrinsics.llvm import index_among_8, prefetch

SLOTS = 8  # of a bucket
_SLOTS = np.uint64(SLOTS)
_GOLDEN = np.uint32(2654435769)  # 2^32 over the golden ratio: spreads numbers that lie close together (Knuth)


@njit(nogil=True, inline="always")
def hash_of(feature):
    """Return the hash of the number of a feature, below 2^32."""
    return np.uint64(np.uint32(np.uint32(feature) * _GOLDEN))


@njit(nogil=True, inline="always")
def first_bucket(hashed, first, last):
    """Return the bucket, from `first` to `last` - 1, at which the search for a feature with this hash begins."""
    return first + ((hashed * (last - first)) >> np.uint64(32))


@njit(nogil=True, inline="always")
def bucket_stride(table_values):
    """Return the distance between buckets, in elements of `table_keys` and of `table_values`.

    float32 values lie behind the keys of their bucket, in the same cache line; int8 values are an array of their own.
    """
    return np.uint64(2 * SLOTS if table_values.itemsize == 4 else SLOTS)


@kernel()
def hash_weights(indptr, features, weights, table_starts, table_keys, table_values):
    """Write the weights of all labels, CSR (L, F), to their hash tables.

    The table of label l has the buckets from table_starts[l] to table_starts[l + 1], with more slots than the label has
    weights. In a slot, `table_keys`, integers that must be 0, becomes the feature plus 1, and `table_values` its
    weight. Their places in both arrays : see `bucket_stride`.
    """
    stride = bucket_stride(table_values)
    for label in range(indptr.size - 1):
        first, last = np.uint64(table_starts[label]), np.uint64(table_starts[label + 1])
        for p in range(indptr[label], indptr[label + 1]):
            bucket, slot = first_bucket(hash_of(features[p]), first, last), np.uint64(0)
            while table_keys[bucket * stride + slot] != 0:
                slot += np.uint64(1)
                if slot == _SLOTS:
                    bucket, slot = bucket + np.uint64(1), np.uint64(0)
                    bucket = bucket if bucket < last else first
            table_keys[bucket * stride + slot] = features[p] + 1
            table_values[(bucket + np.uint64(1)) * stride - _SLOTS + slot] = weights[p]


@njit(nogil=True, inline="always")
def weight_in_bucket(feature, at, stride, table_keys, table_values):
    """Return the weight of a feature in the bucket whose first key is `table_keys[at]`; 0 if there is none."""
    slot = index_among_8(table_keys, at, feature + 1)
    value = np.float32(table_values[at + stride - _SLOTS + (slot & np.uint64(7))])  # without a branch
    return value if slot < _SLOTS else ZERO


@njit(nogil=True, inline="always")
def weight_of(feature, at, first, last, stride, table_keys, table_values):
    """Return the weight of a feature in a table whose keys are from `first` to `last` - 1; 0 if there is none.

    at : the first key of the bucket at which the search begins; it ends at a bucket with room.
    """
    weight, left = weight_in_bucket(feature, at, stride, table_keys, table_values), last - first
    # After a full bucket, the weight may be in the next one. With `break`, this takes five times as long.
    while (weight == 0) & (table_keys[at + _SLOTS - np.uint64(1)] != 0) & (left > stride):
        at, left = at + stride, left - stride
        at = at if at < last else first
        weight = weight_in_bucket(feature, at, stride, table_keys, table_values)
    return weight


@njit(nogil=True, fastmath=FAST)
def dense_margins_of_row(features, entries, labels, table_values, table_scales, linear_bias, out):
    """Write the margins of labels int32 (M,) of a row to `out` float32, by `table_values`, a dense matrix (L * F,)."""
    n_features = table_values.size // linear_bias.size
    for j in range(labels.size):
        label, score = labels[j], ZERO
        out[j] = np.float32(-1)
        if label < 0:
            continue
        first = np.uint64(label * n_features)
        for p in range(features.size):
            score += np.float32(table_values[first + np.uint64(features[p])]) * entries[p]
        out[j] = linear_bias[label] + table_scales[min(label, table_scales.size - 1)] * score


@njit(nogil=True, fastmath=FAST)
def margins_of_row(features, entries, labels, table_starts, table_keys, table_values, table_scales, linear_bias, out):
    """Write the margins of labels int32 (M,) of one row to `out` float32; see `margins`.

    Returns whether all tables are in range; others are never read.
    """
    if table_keys.size == 0:
        dense_margins_of_row(features, entries, labels, table_values, table_scales, linear_bias, out)
        return True
    sound, stride = True, bucket_stride(table_values)
    n_buckets, is_apart = np.uint64(table_keys.size) // stride, stride == _SLOTS
    hashes, begins = np.empty(features.size, np.uint64), np.empty((2, features.size), np.uint64)
    for p in range(features.size):
        hashes[p] = hash_of(features[p])
    for j in range(labels.size + 1):
        if j < labels.size and labels[j] >= 0:
            first, last = np.uint64(table_starts[labels[j]]), np.uint64(table_starts[labels[j] + 1])
            sound &= first < last <= n_buckets
            for p in range(features.size if sound else 0):
                at = first_bucket(hashes[p], first, last) * stride
                begins[j & 1, p] = at
                prefetch(table_keys, at)
                if is_apart:
                    prefetch(table_values, at)
        if j == 0:
            continue
        label, score = labels[j - 1], ZERO
        out[j - 1] = np.float32(-1)
        if label >= 0 and sound:
            table, end = np.uint64(table_starts[label]) * stride, np.uint64(table_starts[label + 1]) * stride
            for p in range(features.size):
                at = begins[(j - 1) & 1, p]
                score += weight_of(features[p], at, table, end, stride, table_keys, table_values) * entries[p]
            out[j - 1] = linear_bias[label] + table_scales[min(label, table_scales.size - 1)] * score
    return sound


@kernel_of_part(fastmath=FAST)
def margins(
    part, n_parts, indptr, indices, data, labels, table_starts, table_keys, table_values, table_scales, linear_bias,
    out, sound,
):  # fmt: skip
    """Write the margins of labels int32 (rows, M) to `out` float32; -1 for labels -1.

    table_starts, table_keys, table_values : the tables of `hash_weights`; values of label l are multiplied by
    table_scales[l], or by the only scale if there is one. Without keys, `table_values` are a dense matrix, (L * F,).
    sound bool (rows,) : what `margins_of_row` returns.
    """
    n_rows = labels.shape[0]
    for i in range_of_part(n_rows, part, n_parts):
        span = slice(indptr[i], indptr[i + 1])
        sound[i] = margins_of_row(
            indices[span], data[span], labels[i], table_starts, table_keys, table_values, table_scales, linear_bias,
            out[i],
        )  # fmt: skip
