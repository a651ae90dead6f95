"""The kernel that reads dense features: it scales them and adds the nearest landmarks of each row as features."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part, range_of_part
from .knn import replace_worst

ROWS = 32  # that are multiplied with the landmarks at a time, which bounds the memory of their similarities


@njit(nogil=True)
def write_nearest(similarities, norm, places, values):
    """Write the nearest landmarks to `places`, ascending, and their values, of norm `norm`.

    A value is in proportion to how much more similar the landmark is than the next one that is left out. If the
    similarities are not finite, all values are 0.
    """
    n = places.size
    nearest, found = np.full(n + 1, -np.inf, np.float32), np.zeros(n + 1, np.int32)
    for landmark in range(similarities.size):
        if similarities[landmark] > nearest[0]:
            replace_worst(nearest, found, similarities[landmark], landmark)
    order, square = np.argsort(found[1:]), 0.0
    for j in range(n):
        places[j] = found[1 + order[j]]
        values[j] = nearest[1 + order[j]] - nearest[0]
        square += values[j] * values[j]
    values *= norm / np.sqrt(square) if 0 < square < np.inf else 0.0


@kernel_of_part()
def read_dense(
    part, n_parts, indptr, indices, data, place, factor, norm, n_nearest, landmarks, offsets, new_indices, new_data
):
    """Write rows with their nearest landmarks in front, as features 0 to C - 1; other features move up by C.

    place int32 (F,) : the row of `landmarks` float32 (d, C) for each dense feature, -1 for others, as for features from
    F on. The similarity of a row and a landmark is the product of their dense features minus the landmark's offset,
    float32 (C,). Values of dense features are multiplied by `factor`. Row i is written from indptr[i] + i * n_nearest
    on. The landmarks of a row without dense features have values of 0.
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
                at = place[feature] if feature < place.size else -1
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
