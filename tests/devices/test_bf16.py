"""Packing, rounding and multiplying in bfloat16, against NumPy, on each instruction set that the processor has."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from shared.layers import rounded
from shared.paths import ROOT
from xmlsgd.devices.cpu.intrinsics import bf16
from xmlsgd.devices.cpu.intrinsics.bf16 import BLOCK, TILE_BYTES

pytestmark = pytest.mark.processor

HAS = bf16.HAS_AVX512_BF16
NEEDS_AVX512 = pytest.mark.skipif(not HAS, reason="the processor lacks AVX512-BF16")
BLOCKS = [
    pytest.param("block_avx512", id="avx512", marks=NEEDS_AVX512),
    pytest.param("block_amx", id="amx", marks=pytest.mark.skipif(not bf16.HAS_AMX, reason="the processor lacks AMX")),
]


def halves(words):
    """Return the bfloat16 in packed words as float32 (..., 2), low half first."""
    return np.stack([words << np.uint32(16), words & np.uint32(0xFFFF0000)], axis=-1).view(np.float32)


def words(n_tiles):
    """Return room for tiles, filled with what must be overwritten."""
    return np.full(n_tiles * TILE_BYTES // 4, 0x7FC17FC1, np.uint32)


def packed_a(matrix):
    """Pack (M, K) as operand A by the definition in the docstring of bf16."""
    M, K = matrix.shape
    pairs = (rounded(matrix).view(np.uint32) >> 16).reshape(M // 16, 16, K // 32, 16, 2)
    return (pairs[..., 0] | pairs[..., 1] << 16).transpose(0, 2, 1, 3).ravel()


def packed_b(matrix):
    """Pack (K, N) as operand B by the definition in the docstring of bf16."""
    K, N = matrix.shape
    pairs = (rounded(matrix).view(np.uint32) >> 16).reshape(K // 2, 2, N // 16, 16)
    return (pairs[:, 0] | pairs[:, 1] << 16).transpose(1, 0, 2).ravel()


@pytest.fixture(scope="module")
def kernels():
    """Compile what the tests call; only arrays cross, so that their memory lives as long as the call."""

    @njit
    def pack_a(target, source):
        bf16.pack_a(target.ctypes.data, source.ctypes.data, source.shape[1] * 4, source.shape[0], source.shape[1] // 32)

    @njit
    def pack_b(target, source):
        K, N = source.shape
        bf16.pack_b(target.ctypes.data, K // 32 * TILE_BYTES, source.ctypes.data, N * 4, K // 2, N // 16)

    @njit
    def pack_b_transposed(target, source, scratch):
        N, K = source.shape
        bf16.pack_b_transposed(target.ctypes.data, source.ctypes.data, K * 4, N, K // 32, scratch.ctypes.data)

    @njit
    def transpose(target, source):
        bf16.transpose_tile(target.ctypes.data, source.ctypes.data, source.shape[1] * 4)

    @njit
    def multiply(a, b, C, n_tiles, add):
        bf16.tiles_on()
        M, N = C.shape
        bf16.multiply(a.ctypes.data, b.ctypes.data, C.ctypes.data, M, N, N * 4, n_tiles, add)
        bf16.tiles_off()

    return {f.__name__: f for f in (pack_a, pack_b, pack_b_transposed, transpose, multiply)}


def compiled_block(name):
    """Return a compiled call of one block function with the tile registers that it needs."""
    block = getattr(bf16, name)

    @njit
    def call(a, b, C, n_tiles, add):
        bf16.tiles_on()
        panel = n_tiles * TILE_BYTES
        block(a.ctypes.data, panel, b.ctypes.data, panel, C.ctypes.data, C.shape[1] * 4, n_tiles, add)
        bf16.tiles_off()

    return call


@NEEDS_AVX512
def test_rounding_is_to_the_nearest_and_ties_go_to_even(kernels):
    ulp = 2.0**-7
    values = [1, 1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.4999 * ulp, 1 + 0.5001 * ulp, -1 - ulp / 2, 3.3e38, 1e-30, 0, np.inf]
    expected = [1, 1, 1 + 2 * ulp, 1, 1 + ulp, -1, 3.3e38, 1e-30, 0, np.inf]
    source = np.zeros((16, 32), np.float32)
    source[0, : len(values)] = values
    target = words(1)
    kernels["pack_a"](target, source)
    got = halves(target).reshape(16, 32)[0, : len(values)]
    np.testing.assert_array_equal(got[:6], np.float32(expected[:6]))
    np.testing.assert_array_equal(got, rounded(expected))


@NEEDS_AVX512
def test_rounding_agrees_with_integer_arithmetic_on_random_bits_and_nan_stays_nan(kernels):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 64 * 1024, dtype=np.uint32)
    source = bits.view(np.float32)
    normal = np.abs(source) >= np.finfo(np.float32).tiny  # subnormal inputs count as zero
    source = np.where(normal | np.isnan(source), source, np.float32(0)).reshape(1024, 64)
    target = words(1024 // 16 * 2)
    kernels["pack_a"](target, source)
    got = halves(target.reshape(64, 2, 16, 16)).transpose(0, 2, 1, 3, 4).reshape(1024, 64)
    nan = np.isnan(source)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan], rounded(source)[~nan])


@NEEDS_AVX512
def test_each_packing_writes_every_word_of_its_layout(kernels):
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((2, 64, 96), dtype=np.float32)
    target = words(64 // 16 * 3)
    kernels["pack_a"](target, A)
    np.testing.assert_array_equal(target, packed_a(A))
    kernels["pack_b"](target, B)
    np.testing.assert_array_equal(target, packed_b(B))
    kernels["pack_b_transposed"](target, B, words(1))
    np.testing.assert_array_equal(target, packed_b(np.ascontiguousarray(B.T)))


@NEEDS_AVX512
def test_a_tile_is_transposed_word_by_word(kernels):
    source = np.arange(16 * 40, dtype=np.uint32).reshape(16, 40)
    target = words(1)
    kernels["transpose"](target, source)
    np.testing.assert_array_equal(target.reshape(16, 16), source[:, :16].T)


@NEEDS_AVX512
@pytest.mark.parametrize(("M", "K", "N"), [(32, 32, 32), (64, 96, 32), (32, 64, 160)])
def test_multiply_is_the_product_of_the_rounded_operands(kernels, M, K, N):
    rng = np.random.default_rng(M + K + N)
    A, B = rng.standard_normal((M, K), dtype=np.float32), rng.standard_normal((K, N), dtype=np.float32)
    C = np.full((M, N), np.nan, np.float32)
    exact = rounded(A).astype(np.float64) @ rounded(B)
    limit = K * 2.0**-24 * (np.abs(A) @ np.abs(B)).max()  # float32 sums of K terms
    kernels["multiply"](packed_a(A), packed_b(B), C, K // 32, 0)
    np.testing.assert_allclose(C, exact, rtol=0, atol=limit)
    kernels["multiply"](packed_a(A), packed_b(B), C, K // 32, 1)
    np.testing.assert_allclose(C, 2 * exact, rtol=0, atol=4 * limit)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_exact_on_integers_and_stays_inside_its_32_columns(name):
    rng = np.random.default_rng(2)
    n_tiles, K = 3, 96
    A, B = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((BLOCK, K), (K, BLOCK)))
    C = np.full((BLOCK, BLOCK + 16), 5, np.float32)
    block = compiled_block(name)
    block(packed_a(A), packed_b(B), C, n_tiles, 0)
    np.testing.assert_array_equal(C[:, :BLOCK], A @ B)
    np.testing.assert_array_equal(C[:, BLOCK:], 5)
    block(packed_a(A), packed_b(B), C, n_tiles, 1)
    np.testing.assert_array_equal(C[:, :BLOCK], 2 * (A @ B))
    block(packed_a(A), packed_b(B), C, 1, 0)  # panels of one tile, from the same memory
    first = packed_a(A)[: 2 * TILE_BYTES // 4].reshape(2, 16, 16), packed_b(B)[: 2 * TILE_BYTES // 4].reshape(2, 16, 16)
    left = halves(first[0]).reshape(BLOCK, 32)
    right = halves(first[1]).transpose(1, 3, 0, 2).reshape(32, BLOCK)
    np.testing.assert_array_equal(C[:, :BLOCK], left @ right)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_carries_nan_to_just_the_row_and_the_column_that_hold_it(name):
    A, B = np.ones((BLOCK, 32), np.float32), np.ones((32, BLOCK), np.float32)
    A[3, 7] = np.nan
    B[9, 20] = np.nan
    C = np.zeros((BLOCK, BLOCK), np.float32)
    compiled_block(name)(packed_a(A), packed_b(B), C, 1, 0)
    expected = np.full((BLOCK, BLOCK), False)
    expected[3], expected[:, 20] = True, True
    np.testing.assert_array_equal(np.isnan(C), expected)
    np.testing.assert_array_equal(C[~expected], 32)


def test_a_processor_without_the_instructions_gets_float32_and_a_clear_refusal():
    """Numba told to build for a plain processor stands in for one."""
    code = (
        "from xmlsgd.devices.cpu import CPU\n"
        "print(CPU(1, 'auto').bfloat16)\n"
        "try: CPU(1, 'bfloat16')\n"
        "except ValueError as error: print(error)"
    )
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment,
        cwd=ROOT,
    )  # fmt: skip
    assert result.stdout.splitlines() == [
        "False",
        "precision='bfloat16' needs a processor with AVX512-BF16 or AMX; pass 'auto' or 'float32'",
    ], result.stderr
