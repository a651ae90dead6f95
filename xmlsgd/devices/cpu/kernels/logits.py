"""Kernels over candidate labels: the network's logits of some labels per row, and the best of scored labels.

Weights are float32, or int8 with a scale per row: `scales` float32 (L,), or (1,) for the same scale in all rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part, range_of_part
from ..intrinsics.elementary import FAST, ZERO, exp_negative, log1p_unit
from ..intrinsics.llvm import prefetch_row

ONE_SCALE = np.ones(1, np.float32)  # of weights in float32
AHEAD = 2  # labels by which prefetches of weights are ahead


@njit(nogil=True, fastmath=FAST)
def widen(W, scales, label, out):
    """Write row `label` of W (L, H), times its scale, to `out` float32 (H,)."""
    w, scale = W[label], scales[min(label, scales.size - 1)]
    for h in range(out.size):
        out[h] = scale * np.float32(w[h])


@njit(nogil=True, fastmath=FAST)
def logit_of(a, W, scales, b, label):
    """Return the logit of one label, float32, given the activations a (H,) of a row."""
    product, w = ZERO, W[label]
    for h in range(a.size):
        product += a[h] * np.float32(w[h])
    return b[label] + scales[min(label, scales.size - 1)] * product


@njit(nogil=True, fastmath=FAST)
def logits_of_row(a, W, scales, b, labels, out):
    """Write a W^T + b of labels int32 (M,) to `out` float32 (M,), 0 for label -1; a (H,) : a row of A."""
    for j in range(labels.size):
        if j + AHEAD < labels.size:
            prefetch_row(W, np.int64(labels[j + AHEAD]))
        out[j] = logit_of(a, W, scales, b, np.int64(labels[j])) if labels[j] >= 0 else ZERO


@kernel_of_part()
def pair_logits(part, n_parts, A, W, scales, b, labels, out):
    """Write A W^T + b of labels int32 (rows, M) to `out` float32 (rows, M), 0 for label -1.

    A (rows, H) : activations. W (L, H), scales, b (L,) : the output layer.
    """
    n_rows = labels.shape[0]
    for i in range_of_part(n_rows, part, n_parts):
        logits_of_row(A[i], W, scales, b, labels[i], out[i])


@njit(nogil=True)
def rank(scores, labels, score, label):
    """Insert (score, label) into a list, best first, and drop its last entry; of equal scores, smaller label first."""
    j = scores.size
    while j > 0 and (scores[j - 1] < score or (scores[j - 1] == score and labels[j - 1] > label)):
        if j < scores.size:
            scores[j], labels[j] = scores[j - 1], labels[j - 1]
        j -= 1
    if j < scores.size:
        scores[j], labels[j] = score, label


@njit(nogil=True, fastmath=FAST, inline="always")
def log_probability(z):
    """Return log(1 / (1 + exp(-z))), float32."""
    return min(z, ZERO) - log1p_unit(exp_negative(-abs(z)))


@njit(nogil=True)
def best_of(labels, found, best, scores):
    """Write the labels int32 (M,) with the highest scores, `found` float32 (M,), to `best` and `scores` (k,).

    Best first; of equal scores, the smaller label first. Labels -1 are ignored; -1 and -inf fill up.
    """
    best[:], scores[:] = -1, -np.inf
    for j in range(labels.size):
        if labels[j] >= 0:
            rank(scores, best, found[j], np.int64(labels[j]))
