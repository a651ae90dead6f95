"""Tensor maps, which describe boxes of an array for a GPU's copy engine; the driver makes them, CuPy cannot."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any

import numpy as np

BYTES, ALIGNMENT = 128, 64  # of a map
BFLOAT16, NO_INTERLEAVE, SWIZZLE_128, PROMOTE_256, ZEROS = 9, 0, 3, 3, 0  # CUtensorMap's numbers


@cache
def library() -> Any:
    """Return the driver's functions."""
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=64)  # as many matrices and numbers of labels come again
def encoded(
    driver: Any, address: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]
) -> np.ndarray:
    """Return the map, uint64 (16,), of an array of bfloat16 at an address.

    sizes, box : elements of the array and of a box in each dimension, that of adjacent elements first. strides : bytes
    from one element to the next in each dimension but the first. A box has rows of 128 bytes, swizzled, and zeros
    outside of the array. driver : the library; None for the system's.
    """
    room = np.zeros(BYTES + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    made = room[first : first + BYTES].view(np.uint64)
    n = len(sizes)
    status = (driver or library()).cuTensorMapEncodeTiled(
        ctypes.c_void_p(made.ctypes.data), BFLOAT16, n, ctypes.c_void_p(address), (ctypes.c_uint64 * n)(*sizes),
        (ctypes.c_uint64 * (n - 1))(*strides), (ctypes.c_uint32 * n)(*box), (ctypes.c_uint32 * n)(*[1] * n),
        NO_INTERLEAVE, SWIZZLE_128, PROMOTE_256, ZEROS,
    )  # fmt: skip
    if status:
        raise RuntimeError(f"cuTensorMapEncodeTiled: error {status} of the driver")
    return made
