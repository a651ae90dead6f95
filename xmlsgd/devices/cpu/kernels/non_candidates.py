"""The kernel that counts the logits of labels that are not candidates of their row."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part, range_of_part

# Logits are counted in bins of this width; those beyond `LARGEST` are in the first and the last bin.
WIDTH, LARGEST = np.float32(1 / 32), np.float32(32)
N_BINS = int(2 * LARGEST / WIDTH)
ROWS = 16  # that are multiplied at a time, which bounds the memory of their logits


@njit(nogil=True)
def bin_of(logit):
    """Return the bin of a logit; that of NaN is the first one."""
    if not logit > -LARGEST:
        return 0
    return int(min((logit + LARGEST) / WIDTH, np.float32(N_BINS - 1)))


@kernel_of_part()
def count_others(part, n_parts, A, W, b, labels, indptr, indices, label_weight, counts):
    """Add the numbers of false and true labels that are not candidates to `counts`, float64 (n_parts, 2, N_BINS).

    A (rows, H) : activations. W (L, H), b (L,) : the output layer. labels : candidates of each row, int32 (rows, M), -1
    for none; rows without any do not count. indptr, indices : the true labels of the rows. label_weight : of each label
    where it is true, float64 (L,).
    """
    false, true = counts[part]
    rows = range_of_part(len(labels), part, n_parts)
    for first in range(rows.start, rows.stop, ROWS):
        Z = np.dot(A[first : min(first + ROWS, rows.stop)], W.T)
        for i in range(first, first + len(Z)):
            z = Z[i - first]
            if labels[i].max() < 0:
                continue
            for label in range(b.size):
                z[label] += b[label]
                false[bin_of(z[label])] += 1
            for label in labels[i]:
                if label >= 0:
                    false[bin_of(z[label])] -= 1
            for label in indices[indptr[i] : indptr[i + 1]]:
                if not (labels[i] == label).any():
                    false[bin_of(z[label])] -= 1
                    true[bin_of(z[label])] += label_weight[label]
