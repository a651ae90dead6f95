"""One flat float32 vector for all parameters, with named views.

A flat vector makes a merge one line of vector algebra, a replica one row of a memory map, a checkpoint one write.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

LARGEST = 127  # int8
ROUNDED_ROWS = 1 << 14  # worked on at once, so that scratch arrays stay small beside the weights
ALIGNMENT = 16  # floats: 64 bytes, one cache line, so that no two tensors share one


@dataclass(frozen=True)
class Layout:
    """Names, shapes and places of the tensors in a flat vector of `size` float32.

    `shapes` maps a name to its shape, in the order of the vector; every tensor starts on a multiple of 64 bytes.
    """

    shapes: dict[str, tuple[int, ...]]

    @property
    def offsets(self) -> dict[str, int]:
        """Return where each tensor starts, in floats."""
        offsets, at = {}, 0
        for name, shape in self.shapes.items():
            offsets[name] = at
            at += -(-math.prod(shape) // ALIGNMENT) * ALIGNMENT
        return offsets

    @property
    def size(self) -> int:
        """Return the number of floats of the vector, padding included."""
        return sum(-(-math.prod(shape) // ALIGNMENT) * ALIGNMENT for shape in self.shapes.values())

    def views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the tensors as views of `flat`, float32 (size,)."""
        offsets = self.offsets
        return {
            name: flat[offsets[name] : offsets[name] + math.prod(shape)].reshape(shape)
            for name, shape in self.shapes.items()
        }


def zeros(size: int) -> np.ndarray:
    """Return float32 zeros (size,) that start on a cache line; pages are taken only when they are touched."""
    buffer = np.zeros(size + ALIGNMENT, np.float32)
    skip = -buffer.ctypes.data % (4 * ALIGNMENT) // 4
    return buffer[skip : skip + size]


def rounded(weights: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights as int8 and the scale, float32, of each row, which lies from starts[i] to starts[i + 1].

    The scale is the row's largest size over 127, so that a weight moves by half of it at most.
    """
    small, scales = np.zeros(len(weights), np.int8), np.ones(len(starts) - 1, np.float32)
    for first in range(0, len(scales), ROUNDED_ROWS):
        ends = starts[first : first + ROUNDED_ROWS + 1]
        part, lengths = weights[ends[0] : ends[-1]], np.diff(ends)
        some = lengths > 0
        if some.any():
            largest = np.zeros(len(lengths), np.float32)
            largest[some] = np.maximum.reduceat(np.abs(part), (ends[:-1] - ends[0])[some])
            found = scales[first : first + ROUNDED_ROWS]
            np.divide(largest, np.float32(LARGEST), out=found, where=largest > 0)
            np.maximum(found, np.finfo(np.float32).tiny, out=found)  # below it a quotient may be any number
            small[ends[0] : ends[-1]] = np.rint(part / np.repeat(found, lengths))
    return small, scales
