"""cuBLAS on the CPU, as CuPy has it."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from xmlsgd.devices.cuda.runtime import CUDA_R_16BF

from ..layers import rounded


class Cublas:
    """`gemmEx` as cuBLAS defines it: matrices by address, counted by columns."""

    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT = 68, -1

    def __init__(self, memory):
        self.memory, self.streams = memory, memory.streams
        self.handles: set[int] = set()
        self.numbers = itertools.count(1)  # none is given out again

    def create(self):
        self.handles.add(handle := next(self.numbers))
        return handle

    def destroy(self, handle):
        self.handles.remove(handle)

    def gemmEx(
        self, handle, ta, tb, m, n, k, alpha, A, a_type, lda, B, b_type, ldb, beta, C, c_type, ldc, compute, algo
    ):
        factor, keep = (float(_memory(at, np.float32, 1)[0]) for at in (alpha, beta))
        assert (compute, algo) == (68, -1)
        assert handle in self.handles
        assert all(isinstance(one, int) for one in (ta, tb, m, n, k, A, a_type, lda, B, b_type, ldb, C, c_type, ldc))
        assert c_type == a_type or c_type == 0, "cuBLAS has no such product"

        alive = [self.memory.block_of(address) for address in (A, B, C)]  # CuPy gives it to others in stream order
        assert None not in alive, "a matrix is not in the memory of the GPU"

        def multiply(alive=alive):
            left = _matrix(A, a_type, (k, m) if ta else (m, k), lda)
            right = _matrix(B, b_type, (n, k) if tb else (k, n), ldb)
            narrow = c_type == CUDA_R_16BF
            out = _columns(C, np.uint16 if narrow else np.float32, (m, n), ldc)
            product = np.float32(factor) * ((left.T if ta else left) @ (right.T if tb else right))
            if narrow:
                assert keep == 0
                product = (rounded(product).view(np.uint32) >> 16).astype(np.uint16)
            out[:] = product + np.float32(keep) * out if keep else product  # with beta 0, C is not read

        self.streams.here().do(multiply)

    def gemmStridedBatchedEx(
        self, handle, ta, tb, m, n, k, alpha, A, a_type, lda, of_A, B, b_type, ldb, of_B, beta, C, c_type, ldc, of_C,
        count, compute, algo,
    ):  # fmt: skip
        a, b, c = (2 if kind == CUDA_R_16BF else 4 for kind in (a_type, b_type, c_type))
        for i in range(count):
            left, right, out = A + i * of_A * a, B + i * of_B * b, C + i * of_C * c
            self.gemmEx(
                handle, ta, tb, m, n, k, alpha, left, a_type, lda, right, b_type, ldb, beta, out, c_type, ldc, compute,
                algo,
            )  # fmt: skip


def _memory(address, dtype, count):
    raw = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(raw, dtype)


def _columns(address, dtype, shape, leading):
    """Return the matrix of `shape` that lies by columns, `leading` elements apart."""
    assert leading >= shape[0] > 0, "a leading dimension is at least the length of a column"
    flat = _memory(address, dtype, leading * (shape[1] - 1) + shape[0])
    size = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, shape, (size, leading * size))


def _matrix(address, kind, shape, leading):
    if kind != CUDA_R_16BF:
        return _columns(address, np.float32, shape, leading)
    return (_columns(address, np.uint16, shape, leading).astype(np.uint32) << 16).view(np.float32)
