"""The driver of a GPU that is not there: tensor maps as `cuda_shim.h` reads them."""

from __future__ import annotations

import ctypes

WORDS = 16  # of a map, 64 bits each
BFLOAT16, ZEROS, NO_INTERLEAVE, SWIZZLE_128 = 9, 0, 0, 3


class Driver:
    """`cuTensorMapEncodeTiled` for arrays of bfloat16 with three dimensions, in boxes whose rows are 128 bytes."""

    def __init__(self, memory):
        self.memory = memory

    def cuTensorMapEncodeTiled(
        self, made, kind, rank, address, sizes, strides, box, apart, interleave, swizzle, promotion, outside
    ):
        assert (kind, rank, interleave, swizzle, outside) == (BFLOAT16, 3, NO_INTERLEAVE, SWIZZLE_128, ZEROS)
        assert made.value % 64 == 0, "a map lies on 64 bytes"
        assert address.value % 16 == 0, "an array begins on 16 bytes"
        assert list(apart) == [1, 1, 1], "elements of a box are neighbours"
        assert all(stride % 16 == 0 for stride in strides), "rows begin on 16 bytes"
        assert box[0] * 2 == 128, "a row is as long as the swizzle"
        assert max(box) <= 256, "a box has at most 256 elements each way"
        end = sum((size - 1) * stride for size, stride in zip(sizes, (2, *strides), strict=True)) + 2
        assert self.memory.holds(address.value, end), "the map goes beyond its array"
        words = (ctypes.c_uint64 * WORDS)(address.value, *sizes, *strides, *box)
        ctypes.memmove(made.value, words, ctypes.sizeof(words))
        return 0
