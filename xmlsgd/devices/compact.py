"""Weights of a compact model: int8 with a scale per row, which take a quarter of the memory of float32."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LARGEST = 127  # int8
ROWS = 1 << 14  # converted at once, so that temporary arrays stay small


class CompactLayer(NamedTuple):
    """A layer for prediction: row i of its weights is scales[i] W[i], W int8, scales float32; b are biases."""

    W: np.ndarray
    scales: np.ndarray
    b: np.ndarray


def widened(layer: CompactLayer, part: slice = slice(None)) -> np.ndarray:
    """Return the weights of a layer, or of some of its outputs, in float32."""
    return layer.W[part] * layer.scales[part, None]


def compacted(weights: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights as int8, and the scale of each row, float32; row i is weights[starts[i] : starts[i + 1]].

    The scale is the largest absolute weight of the row over 127, so that rounding changes a weight by half a scale at
    most.
    """
    small, scales = np.zeros(len(weights), np.int8), np.ones(len(starts) - 1, np.float32)
    for first in range(0, len(scales), ROWS):
        ends = starts[first : first + ROWS + 1]
        part, lengths = weights[ends[0] : ends[-1]], np.diff(ends)
        some = lengths > 0
        if some.any():
            largest = np.zeros(len(lengths), np.float32)
            largest[some] = np.maximum.reduceat(np.abs(part), (ends[:-1] - ends[0])[some])
            found = scales[first : first + ROWS]
            np.divide(largest, np.float32(LARGEST), out=found, where=largest > 0)
            np.maximum(found, np.finfo(np.float32).tiny, out=found)  # quotients by smaller scales are not exact
            small[ends[0] : ends[-1]] = np.rint(part / np.repeat(found, lengths))
    return small, scales
