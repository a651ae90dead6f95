"""Exponential and logarithm by polynomials in float32, which LLVM turns into vector code.

`FAST` names fastmath flags one by one, without those that ignore NaN and infinity: a run that diverges is found by its
loss.
"""

from __future__ import annotations

import numpy as np
from numba import njit

FAST = {"reassoc", "nsz", "arcp", "contract", "afn"}
HALF, ONE, ZERO = np.float32(0.5), np.float32(1), np.float32(0)

_LOG2_E = np.float32(1.4426950408889634)
_LOWEST_EXPONENT = np.float32(-126)  # below, 2^t is subnormal
# Chebyshev fits. 2^f on [-1/2, 1/2], relative error 8e-8:
_P0, _P1, _P2, _P3, _P4, _P5 = (
    np.float32(c) for c in (1.00000008, 0.69314721, 0.24022107, 0.05550327, 0.00967604, 0.00134004)
)
# log(1 + e) / e on [0, 1], absolute error 1.3e-6:
_L0, _L1, _L2, _L3, _L4, _L5, _L6 = (
    np.float32(c) for c in (0.99999876, -0.49987192, 0.33112052, -0.23514864, 0.14943458, -0.06658805, 0.01420283)
)


@njit(nogil=True, fastmath=FAST, inline="always")
def exp_negative(x):
    """Return e^x for x <= 0; at least about 1e-38.

    The relative error is 3e-7 for x >= -1, and grows to 4e-6 at x = -87, as x log2(e) is rounded.
    """
    t = max(x * _LOG2_E, _LOWEST_EXPONENT)
    n = np.floor(t + HALF)
    f = t - n
    power = _P0 + f * (_P1 + f * (_P2 + f * (_P3 + f * (_P4 + f * _P5))))
    return power * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(nogil=True, fastmath=FAST, inline="always")
def log1p_unit(e):
    """Return log(1 + e) for e in [0, 1], with an error of at most 2e-6."""
    return e * (_L0 + e * (_L1 + e * (_L2 + e * (_L3 + e * (_L4 + e * (_L5 + e * _L6))))))
