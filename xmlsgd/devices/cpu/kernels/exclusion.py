"""The kernel of labels that exclude each other: lower scores of labels that rarely occur with a more probable one."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part
from ..intrinsics.elementary import ONE, ZERO

UNIT = np.float32(1 / 256)  # of numbers in the table
_IMPROBABLE = np.float32(np.log(1 / 19))  # labels with lower log odds exclude nothing, so that few pairs are read


@njit(nogil=True)
def exclude_in_row(
    labels, first, least, k, exclusion_row, exclusion_table, exclusion_weight, order, known, left, score, chance, out
):
    """Lower the log odds `out` float32 (M,) of labels int32 (M,) that labels with higher log odds exclude.

    If label a is true, the probability of label b falls by the share in row a, column b of `exclusion_table` uint8
    (N, N), in units of `UNIT`; if a has probability p, by p times this share. Of all labels a, the largest fall counts:
    `exclusion_weight` times the log of (1 - fall) is added to the log odds of b. Only labels whose `first` float32 (M,)
    is at least `least` exclude others. exclusion_row int32 (at most L,) : row and column of each label in the table, -1
    for none.

    The function ends when the best k labels are certain; labels that cannot be among them keep their log odds. order
    and known int32 (M,), left, score and chance float32 (M,) are scratch: labels by falling log odds, log odds of
    labels that are left, and row, log odds and probability of each label that excludes others.
    """
    for j in range(labels.size):
        left[j] = out[j] if labels[j] >= 0 else -np.inf
    n = 0
    for done in range(labels.size):
        j = left.argmax()
        odds = left[j]
        certain = 0
        for i in range(done):
            certain += out[order[i]] > odds
        if certain >= k or odds == -np.inf:
            return
        order[done], left[j] = j, -np.inf
        column = exclusion_row[labels[j]] if labels[j] < exclusion_row.size else -1
        if column < 0:
            continue
        fall = ZERO
        for i in range(n):
            if score[i] > odds:
                fall = max(fall, chance[i] * np.float32(exclusion_table[known[i], column]))
        out[j] += exclusion_weight * np.log(ONE - fall)
        if odds > _IMPROBABLE and first[j] >= least:
            known[n], score[n], chance[n] = column, odds, UNIT / (ONE + np.exp(-odds))
            n += 1


@kernel_of_part()
def exclude(part, n_parts, labels, first, least, exclusion_row, exclusion_table, exclusion_weight, out):
    """Lower `out` float32 (rows, M) of all labels int32 (rows, M) as `exclude_in_row` does; least float32 (rows,)."""
    n_rows, M = labels.shape
    order, known, left = np.empty(M, np.int32), np.empty(M, np.int32), np.empty(M, np.float32)
    score, chance = np.empty(M, np.float32), np.empty(M, np.float32)
    for i in range(part, n_rows, n_parts):
        exclude_in_row(
            labels[i], first[i], least[i], M, exclusion_row, exclusion_table, exclusion_weight, order, known, left,
            score, chance, out[i],
        )  # fmt: skip
