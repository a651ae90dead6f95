"""The kernel that adds the nearest landmarks to rows and scales dense features."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part, range_of_part
from .selection import replace_worst

ROWS = 32  # that are multiplied with the landmarks at a time, which bounds the memory of their similarities


@njit(nogil=True)
def write_nearest(similarities, norm, nearest, values):
    """Write the landmarks that are most similar to a row to `nearest`, ascending, and their values, of norm `norm`.

    similarities float32 (C,). nearest int32, values float32 (m,). A value is in proportion to how much more similar the
    landmark is than the next one. If similarities are not finite, all values are 0.
    """
    m = nearest.size
    best, found = np.full(m + 1, -np.inf, np.float32), np.zeros(m + 1, np.int32)
    for landmark in range(similarities.size):
        if similarities[landmark] > best[0]:
            replace_worst(best, found, similarities[landmark], landmark)
    order, square = np.argsort(found[1:]), 0.0
    for j in range(m):
        nearest[j] = found[1 + order[j]]
        values[j] = best[1 + order[j]] - best[0]
        square += values[j] * values[j]
    values *= norm / np.sqrt(square) if 0 < square < np.inf else 0.0


@kernel_of_part()
def add_landmarks(
    part, n_parts, indptr, indices, data, position, factor, norm, n_nearest, landmarks, means, new_indices,
    new_data,
):  # fmt: skip
    """Write rows with their nearest landmarks in front, as features 0 to C - 1; other features move up by C.

    position int32 (F,) : the row of `landmarks` float32 (d, C) for each dense feature, -1 for others, as for features
    from F on. The similarity of a row and a landmark is the product of the landmark and the row's dense features minus
    `means` (d,). Values of dense features are multiplied by `factor`. Row i is written from indptr[i] + i * n_nearest
    on. The landmarks of a row without dense features have values of 0.

    Rows are multiplied in the same blocks whatever the number of threads, so that results are the same to the bit.
    """
    n_rows, n_landmarks = indptr.size - 1, landmarks.shape[1]
    dense, has_dense = np.empty((min(ROWS, n_rows), means.size), np.float32), np.empty(ROWS, np.bool_)
    for block in range_of_part((n_rows + ROWS - 1) // ROWS, part, n_parts):
        first = block * ROWS
        n = min(ROWS, n_rows - first)
        dense[:] = -means
        has_dense[:] = False
        for i in range(first, first + n):
            to = (i + 1) * n_nearest
            for p in range(indptr[i], indptr[i + 1]):
                feature = indices[p]
                at = position[feature] if feature < position.size else -1
                new_indices[to + p] = n_landmarks + feature
                new_data[to + p] = data[p] * factor if at >= 0 else data[p]
                if at >= 0:
                    dense[i - first, at] += data[p]
                    has_dense[i - first] = True
        similarities = np.dot(dense[:n], landmarks)
        for i in range(first, first + n):
            span = slice(indptr[i] + i * n_nearest, indptr[i] + (i + 1) * n_nearest)
            size = norm if has_dense[i - first] else norm * 0
            write_nearest(similarities[i - first], size, new_indices[span], new_data[span])
