"""Random numbers inside kernels: a linear congruential generator, hashes of counters, and dropout.

The generator's constants are those of Numerical Recipes (Press, Teukolsky, Vetterling, Flannery 2007, section 7.1.4).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...base import GOLDEN

_MULTIPLIER, _INCREMENT, _MASK = np.uint64(1664525), np.uint64(1013904223), np.uint64(0xFFFFFFFF)


@njit(nogil=True, inline="always")
def following(state):
    """Return the state after `state`: 32 bits in a uint64."""
    return (state * _MULTIPLIER + _INCREMENT) & _MASK


@njit(nogil=True, inline="always")
def below(state, n):
    """Return a random number in [0, n), int64, from the high bits of a state; its low bits are less random."""
    return np.int64((state * np.uint64(n)) >> np.uint64(32))


@njit(nogil=True, inline="always")
def finalized(h):
    """Return 32 bits that depend on all bits of h: the finaliser of MurmurHash3 (Appleby 2011, public domain)."""
    # Numba multiplies uint32 in 64 bits, so every product is cut to 32 bits.
    h = np.uint32(h)
    h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    h = np.uint32((h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return h ^ (h >> np.uint32(16))


@njit(nogil=True, inline="always")
def hashed(seed, index):
    """Return a hash of (seed, index), 32 bits."""
    return finalized(np.uint32(index) * np.uint32(GOLDEN) + np.uint32(seed))


@njit(nogil=True, inline="always")
def kept(seed, index, threshold):
    """Return whether entry `index` survives dropout, by its hash.

    threshold : the share to drop, times 2^32. There is no state, so all threads, and the backward pass, see the mask of
    the forward pass.
    """
    return hashed(seed, index) >= np.uint32(threshold)
