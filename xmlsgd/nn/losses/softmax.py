"""Softmax cross-entropy with normalised multi-label targets: -sum_l t_l log softmax(z)_l.

The targets of a row are t_l = 1 / |labels of the row| on its labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ...devices.cpu.intrinsics.elementary import FAST, ZERO, exp_negative
from .base import Loss


def value_and_gradient(z: Any, target: Any, log_sum: Any) -> tuple[Any, Any]:
    """Return t (log_sum - z) and softmax(z) - t."""
    return target * (log_sum - z), np.exp(z - log_sum) - target


def initial_bias(frequency: np.ndarray) -> np.ndarray:
    """Return the log of each label's share of all labels."""
    return np.log(frequency / frequency.sum())


@njit(nogil=True, fastmath=FAST, error_model="numpy", inline="always")
def negatives(z, bias, scale, log_sum):
    """Turn logits z (B,) into scale * exp(z + bias - log_sum) in place; return 0 and the sum of z."""
    total = ZERO
    for i in range(z.size):
        z[i] = scale[i] * exp_negative(min(z[i] + bias - log_sum[i], ZERO))
        total += z[i]
    return ZERO, total


@njit(nogil=True)
def correction(z, scale, target, log_sum):
    """Return the correction for a row with the label: t (log_sum - z) of the loss, -t of the gradient, times scale."""
    return scale * target * (log_sum - z), -scale * target


LOSS = Loss(value_and_gradient, initial_bias, normalized=True, negatives=negatives, correction=correction, cuda=1)
