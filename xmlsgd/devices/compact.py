"""Weights of a compact model: int8 with a scale a row, a quarter of their bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LARGEST = 127  # int8
ROWS = 1 << 14  # worked on at once, so that scratch arrays stay small beside the weights


class CompactLayer(NamedTuple):
    """A layer to predict with: W int8, its row i times scales[i], float32; biases b."""

    W: np.ndarray
    scales: np.ndarray
    b: np.ndarray


def widened(layer: CompactLayer, part: slice = slice(None)) -> np.ndarray:
    """Return the weights of some outputs of a layer in float32."""
    return layer.W[part] * layer.scales[part, None]


def compacted(weights: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights as int8 and the scale, float32, of each row, which lies from starts[i] to starts[i + 1].

    The scale is the row's largest size over 127, so that a weight moves by half of it at most.
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
            np.maximum(found, np.finfo(np.float32).tiny, out=found)  # below it a quotient may be any number
            small[ends[0] : ends[-1]] = np.rint(part / np.repeat(found, lengths))
    return small, scales
