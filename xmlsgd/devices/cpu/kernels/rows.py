"""Row kernels: the update of one parameter row, the loss and gradient of one label's logits.

Plain loops over contiguous float32 that LLVM turns into vector code. Fastmath flags are named one by one: NaN and
infinity keep their meaning, because a diverged run is recognised by its loss. `error_model="numpy"` because Python's
check for division by zero is a branch, and a branch keeps LLVM from vector code (8 times slower for Adam).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ....nn.losses import BCE, SOFTMAX
from ....nn.optimizers import (
    ADAGRAD_KIND,
    ADAM_KIND,
    DECAY,
    EPSILON,
    FIRST,
    FIRST_SCALE,
    MOMENTUM_KIND,
    RATE,
    ROW_ADAGRAD_KIND,
    SECOND,
    SECOND_SCALE,
)
from ..intrinsics.avx512 import HAS_AVX512, bce_gradient_avx512

FAST = {"reassoc", "nsz", "arcp", "contract", "afn"}

_LOG2_E = np.float32(1.4426950408889634)
_HALF, _ONE, _TWO, _ZERO = np.float32(0.5), np.float32(1), np.float32(2), np.float32(0)
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
    """Return e^x for x <= 0 within 1e-7 (relative), 1e-38 where it is smaller."""
    t = max(x * _LOG2_E, _LOWEST_EXPONENT)
    n = np.floor(t + _HALF)
    f = t - n
    power = _P0 + f * (_P1 + f * (_P2 + f * (_P3 + f * (_P4 + f * _P5))))
    return power * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(nogil=True, fastmath=FAST, inline="always")
def log1p_unit(e):
    """Return log(1 + e) for e in [0, 1] within 2e-6."""
    return e * (_L0 + e * (_L1 + e * (_L2 + e * (_L3 + e * (_L4 + e * (_L5 + e * _L6))))))


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def clip_row(g, limit):
    """Scale g in place so that its Euclidean norm is at most `limit`."""
    square = _ZERO
    for j in range(g.size):
        square += g[j] * g[j]
    norm = np.sqrt(square)
    if norm > limit:
        scale = limit / norm
        for j in range(g.size):
            g[j] *= scale


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def update_row(kind, w, g, s, t, hyper):
    """Update the parameters w (m,) by their gradient g (m,) in place; s and t are their state.

    s is (m,), or (1,) for row-wise Adagrad; t is (m,) for Adam. Rules that need no state do not read it.
    """
    rate = hyper[RATE]
    if hyper[DECAY] > 0:
        shrink = _ONE - rate * hyper[DECAY]
        for j in range(w.size):
            w[j] *= shrink
    if kind == ADAM_KIND:
        first, second, epsilon = hyper[FIRST], hyper[SECOND], hyper[EPSILON]
        step, scale = rate * hyper[FIRST_SCALE], hyper[SECOND_SCALE]
        for j in range(w.size):
            mean = first * s[j] + (_ONE - first) * g[j]
            square = second * t[j] + (_ONE - second) * g[j] * g[j]
            s[j] = mean
            t[j] = square
            w[j] -= step * mean / (np.sqrt(square) * scale + epsilon)
    elif kind == ADAGRAD_KIND:
        for j in range(w.size):
            s[j] += g[j] * g[j]
            w[j] -= rate * g[j] / (np.sqrt(s[j]) + hyper[EPSILON])
    elif kind == ROW_ADAGRAD_KIND:
        square = _ZERO
        for j in range(w.size):
            square += g[j] * g[j]
        s[0] += square / np.float32(w.size)
        step = rate / (np.sqrt(s[0]) + hyper[EPSILON])
        for j in range(w.size):
            w[j] -= step * g[j]
    elif kind == MOMENTUM_KIND:
        for j in range(w.size):
            s[j] = hyper[FIRST] * s[j] + g[j]
            w[j] -= rate * s[j]
    else:
        for j in range(w.size):
            w[j] -= rate * g[j]


@njit(nogil=True, error_model="numpy")
def update_biases(kind, b, g, s, t, hyper):
    """Update the biases b (m,) by their gradient g (m,): no decay, no clipping, one accumulator each."""
    plain = hyper.copy()
    plain[DECAY] = _ZERO
    update_row(ADAGRAD_KIND if kind == ROW_ADAGRAD_KIND else kind, b, g, s, t, plain)


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def bce_gradient_loops(z, bias, scale):
    """Turn logits z (B,) into scale * sigmoid(z + bias) in place; return the loss of all-negative rows and the sum."""
    value, total = _ZERO, _ZERO
    for i in range(z.size):
        x = z[i] + bias
        a = abs(x)
        e = exp_negative(-a)
        value += scale[i] * (_HALF * (x + a) + log1p_unit(e))
        z[i] = scale[i] * (_ONE if x >= _ZERO else e) / (_ONE + e)
        total += z[i]
    return value, total


@njit(nogil=True)
def _bce_gradient_vectors(z, bias, scale):
    return bce_gradient_avx512(z.ctypes.data, bias, scale.ctypes.data, z.size)


# The choice is made once, at import: code for an instruction set that the processor lacks does not compile.
bce_gradient = _bce_gradient_vectors if HAS_AVX512 else bce_gradient_loops


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def softmax_gradient(z, bias, scale, log_sum):
    """Turn logits z (B,) into scale * exp(z + bias - log_sum) in place; return 0 and the sum."""
    total = _ZERO
    for i in range(z.size):
        z[i] = scale[i] * exp_negative(min(z[i] + bias - log_sum[i], _ZERO))
        total += z[i]
    return _ZERO, total


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def squared_hinge_gradient(z, bias, scale):
    """Turn logits z (B,) into the gradient of max(0, 1 + z)^2 in place; return the negatives' loss and the sum."""
    value, total = _ZERO, _ZERO
    for i in range(z.size):
        x = z[i] + bias + _ONE
        short = _HALF * (x + abs(x))
        value += scale[i] * short * short
        z[i] = scale[i] * _TWO * short
        total += z[i]
    return value, total


@njit(nogil=True, error_model="numpy")
def label_gradient(loss, z, bias, scale, rows, target, log_sum, logits):
    """Turn a label's logits into their gradient in place; return its part of the loss and its bias's gradient.

    z (B,), B a multiple of 16, are the logits of one label without its `bias`; `scale` (B,) weighs the rows, 0 for
    padding; `rows` are the batch rows that have the label. Softmax also reads `target` (B,), 1 / labels of the row, and
    `log_sum` (B,), the log of the sum of exponentials. `logits` (B,) is scratch. Every row is first taken as a
    negative, in vector code; the few positives are mended after.
    """
    for p in range(rows.size):
        logits[p] = z[rows[p]] + bias
    if loss == BCE:
        value, total = bce_gradient(z, bias, scale)
    elif loss == SOFTMAX:
        value, total = softmax_gradient(z, bias, scale, log_sum)
    else:
        value, total = squared_hinge_gradient(z, bias, scale)
    for p in range(rows.size):
        i, x = rows[p], logits[p]
        if loss == BCE:
            value -= scale[i] * x
            change = -scale[i]
        elif loss == SOFTMAX:
            value += scale[i] * target[i] * (log_sum[i] - x)
            change = -scale[i] * target[i]
        else:
            wrong, short = max(_ONE + x, _ZERO), max(_ONE - x, _ZERO)
            value += scale[i] * (short * short - wrong * wrong)
            change = -scale[i] * _TWO * (short + wrong)
        z[i] += change
        total += change
    return value, total
