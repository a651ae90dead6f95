"""Streams of random numbers: what each is for, and the row order of an epoch."""

from __future__ import annotations

import numpy as np

# What a stream is for is the second number of its seed, so that no two streams are equal.
WEIGHTS, ORDER, MASKS, NOISE, NEGATIVES, HELD_OUT, VALIDATION = 1, 2, 3, 4, 5, 6, 7


def epoch_order(n_rows: int, seed: int, epoch: int) -> np.ndarray:
    """Return the row order of an epoch, int64 (n_rows,): a permutation that depends on (seed, epoch) alone."""
    return np.random.default_rng((seed, ORDER, epoch)).permutation(n_rows)
