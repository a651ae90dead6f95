"""Random numbers inside kernels: a linear congruential generator, and a hash of numbers that count something.

The generator's constants are those of Numerical Recipes (Press, Teukolsky, Vetterling, Flannery 2007, section 7.1.4).
"""

from __future__ import annotations

import numpy as np
from numba import njit

_MULTIPLIER, _INCREMENT, _MASK = np.uint64(1664525), np.uint64(1013904223), np.uint64(0xFFFFFFFF)


@njit(nogil=True, inline="always")
def following(state):
    """Return the 32-bit state, uint64, that comes after `state`."""
    return (state * _MULTIPLIER + _INCREMENT) & _MASK


@njit(nogil=True, inline="always")
def below(state, n):
    """Return the number in [0, n) that a state stands for, int64: its high bits, which are the random ones."""
    return np.int64((state * np.uint64(n)) >> np.uint64(32))


@njit(nogil=True, inline="always")
def mixed(x):
    """Return 31 bits that depend on all bits of x, as the finaliser of MurmurHash3 mixes them."""
    h = np.uint64(x) & _MASK
    h = ((h ^ (h >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & _MASK
    h = ((h ^ (h >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & _MASK
    return np.int64((h ^ (h >> np.uint64(16))) >> np.uint64(1))
