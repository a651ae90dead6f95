"""The kernel that adds the nearest landmarks to rows and scales dense features."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part, range_of_part
from .knn import replace_worst

ROWS = 32  # that are multiplied with the landmarks at a time, which bounds the memory of their similarities


@njit(nogil=True)
def write_nearest(similarities, norm, nearest, values):
    """Write the landmarks that are most similar to a row to `nearest`, ascending, and their values, of norm `norm`.

    similarities float32 (C,). nearest int32, values float32 (m,) : m below C. A value is in proportion to how much more
    similar the landmark is than the next one. If similarities are not finite, all values are 0.
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
    part, n_parts, indptr, indices, data, position, factor, norm, n_nearest, landmarks, offsets, new_indices, new_data
):
    """Write rows with their nearest landmarks in front, as features 0 to C - 1; other features move up by C.

    position int32 (F,) : the row of `landmarks` float32 (d, C) for each dense feature, -1 for others, as for features
    from F on. The similarity of a row and a landmark is the product of their dense features minus the landmark's
    offset, float32 (C,). Values of dense features are multiplied by `factor`. Row i is written from
    indptr[i] + i * n_nearest on. The landmarks of a row without dense features have values of 0.
    """
    n_landmarks = offsets.size
    rows = range_of_part(indptr.size - 1, part, n_parts)
    dense = np.empty((min(ROWS, len(rows)), landmarks.shape[0]), np.float32)
    for first in range(rows.start, rows.stop, ROWS):
        n = min(ROWS, rows.stop - first)
        dense[:] = 0
        for i in range(first, first + n):
            to = (i + 1) * n_nearest
            for p in range(indptr[i], indptr[i + 1]):
                feature = indices[p]
                at = position[feature] if feature < position.size else -1
                new_indices[to + p] = n_landmarks + feature
                new_data[to + p] = data[p] * factor if at >= 0 else data[p]
                if at >= 0:
                    dense[i - first, at] = data[p]
        similarities = np.dot(dense[:n], landmarks)
        for i in range(first, first + n):
            span = slice(indptr[i] + i * n_nearest, indptr[i] + (i + 1) * n_nearest)
            row = similarities[i - first]
            row -= offsets
            size = norm if dense[i - first].any() else norm * 0
            write_nearest(row, size, new_indices[span], new_data[span])
