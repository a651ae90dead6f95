"""Binary cross-entropy: independent sigmoid decisions, -sum_l [y log sigmoid(z) + (1 - y) log(1 - sigmoid(z))]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ...devices.cpu.intrinsics.avx512 import HAS_AVX512, bce_gradient_avx512
from ...devices.cpu.intrinsics.elementary import FAST, HALF, ONE, ZERO, exp_negative, log1p_unit
from .base import Loss


def value_and_gradient(z: Any, target: Any, log_sum: Any) -> tuple[Any, Any]:
    """Return log(1 + e^z) - y z and sigmoid(z) - y."""
    return np.logaddexp(0, z) - target * z, np.exp(-np.logaddexp(0, -z)) - target


def initial_bias(frequency: np.ndarray) -> np.ndarray:
    """Return the log odds of each label."""
    return np.log(frequency) - np.log1p(-np.minimum(frequency, 0.999))


@njit(nogil=True, fastmath=FAST, error_model="numpy", inline="always")
def negatives_loops(z, bias, scale, log_sum):
    """Turn logits z (B,) into scale * sigmoid(z + bias) in place; return the loss of negatives, and the sum of z."""
    value, total = ZERO, ZERO
    for i in range(z.size):
        x = z[i] + bias
        a = abs(x)
        e = exp_negative(-a)
        value += scale[i] * (HALF * (x + a) + log1p_unit(e))
        z[i] = scale[i] * (ONE if x >= ZERO else e) / (ONE + e)
        total += z[i]
    return value, total


@njit(nogil=True)
def _negatives_vectors(z, bias, scale, log_sum):
    return bce_gradient_avx512(z.ctypes.data, bias, scale.ctypes.data, z.size)


@njit(nogil=True)
def correction(z, scale, target, log_sum):
    """Return the correction for a row that has the label: -z of the loss, -1 of the gradient, times scale."""
    return -scale * z, -scale


# The choice is made once, at import: code for an instruction set that the processor lacks does not compile.
negatives = _negatives_vectors if HAS_AVX512 else negatives_loops

LOSS = Loss(value_and_gradient, initial_bias, negatives=negatives, correction=correction, cuda=0)
