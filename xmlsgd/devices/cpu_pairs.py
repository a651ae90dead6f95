"""Kernels over shortlisted labels: the network's logits of some labels a row, and the best of scored labels."""

from __future__ import annotations

import numpy as np
from numba import prange

from .cpu_rows import FAST
from .cpu_topk import insert
from .kernel import kernel


@kernel(fastmath=FAST)
def pair_logits(A, W, b, labels, out):
    """Write A W^T + b of the labels int32 (rows, M) into `out` float32; 0 where a label is -1.

    A (rows, H) are activations, W (L, H) and b (L,) the output layer.
    """
    for i in prange(labels.shape[0]):
        for j in range(labels.shape[1]):
            score, label = np.float32(0), labels[i, j]
            if label >= 0:
                score = b[label]
                for h in range(A.shape[1]):
                    score += A[i, h] * W[label, h]
            out[i, j] = score


@kernel()
def best_pairs(labels, scores, best, best_scores):
    """Write the best of the labels (rows, M) by their scores into `best` and `best_scores` (rows, k), best first.

    Labels -1 do not count; where fewer than k are left, -1 and -inf fill up. Ties go to the smaller label.
    """
    k = best.shape[1]
    for i in prange(labels.shape[0]):
        best[i], best_scores[i] = -1, -np.inf
        for j in np.argsort(labels[i]):
            if labels[i, j] >= 0 and scores[i, j] > best_scores[i, k - 1]:
                insert(best_scores[i], best[i], scores[i, j], labels[i, j])
