"""Squared hinge: sum_l max(0, 1 - s z)^2, s = 1 for a label of the row and -1 for any other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ...devices.cpu.intrinsics.elementary import FAST, HALF, ONE, TWO, ZERO
from .base import Loss


def value_and_gradient(z: Any, target: Any, log_sum: Any) -> tuple[Any, Any]:
    """Return max(0, 1 - s z)^2 and its derivative, -2 s max(0, 1 - s z)."""
    s = 2 * target - 1
    short = np.maximum(0, 1 - s * z)
    return short * short, -2 * s * short


def initial_bias(frequency: np.ndarray) -> np.ndarray:
    """Return -1, the margin of labels that a row lacks."""
    return np.full(len(frequency), -1.0)


@njit(nogil=True, fastmath=FAST, error_model="numpy", inline="always")
def negatives(z, bias, scale, log_sum):
    """Turn logits z (B,) into the gradient of scale * max(0, 1 + z + bias)^2 in place; return the loss and the sum."""
    value, total = ZERO, ZERO
    for i in range(z.size):
        x = z[i] + bias + ONE
        short = HALF * (x + abs(x))
        value += scale[i] * short * short
        z[i] = scale[i] * TWO * short
        total += z[i]
    return value, total


@njit(nogil=True)
def correction(z, scale, target, log_sum):
    """Return the correction for a row with the label: max(0, 1 - z)^2 - max(0, 1 + z)^2 and derivative, times scale."""
    wrong, short = max(ONE + z, ZERO), max(ONE - z, ZERO)
    return scale * (short * short - wrong * wrong), -scale * TWO * (short + wrong)


LOSS = Loss(value_and_gradient, initial_bias, probability=None, negatives=negatives, correction=correction, cuda=2)
