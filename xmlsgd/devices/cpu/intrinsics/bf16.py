"""bfloat16 matrix products in registers: a 32 x 32 block of C = A B, accumulated in float32.

Operands are packed in tiles of 1 KB, 16 rows of 16 words; a word holds two neighbouring bfloat16 along K
(the layout that both instruction sets want, so one packing serves both):

- operand A (M, K): panels of 16 rows; tile t of a panel holds row m's elements 32 t .. 32 t + 31 in row m.
- operand B (K, N): panels of 16 columns; word (p, n) holds elements (2 p, n) and (2 p + 1, n), p-th row of the panel.

A panel is K / 32 tiles long. M and N are multiples of 32, K of 32: callers pad with zeros.

Two instruction sets: AMX (`tdpbf16ps`, tile registers) and AVX512-BF16 (`vdpbf16ps`); Intel, "Intel 64 and IA-32
Architectures Software Developer's Manual", volume 2. Numba emits them through LLVM's intrinsics. Rounding to
bfloat16 is to nearest even; subnormal inputs count as zero. All addresses are integers, all strides bytes.
"""

from __future__ import annotations

import ctypes
import platform

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .llvm import broadcast, declare, f16x, host_features, i8, i32, i32x, i64, load, offset, pointer, store

TILE_BYTES = 1024
BLOCK = 32  # rows and columns of C that one call of a block function computes


def pad(n: int) -> int:
    """Return the next multiple of 32."""
    return -(-n // BLOCK) * BLOCK


class _BFloat(ir.types.Type):
    """LLVM's `bfloat`, which llvmlite does not name."""

    null = "0.0"

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


_bf32x = ir.VectorType(_BFloat(), 32)

_XSTATE_TILE_DATA = 18  # arch/x86/include/asm/fpu/types.h
_ARCH_REQ_XCOMP_PERM = 0x1023  # arch/x86/include/uapi/asm/prctl.h
_SYS_ARCH_PRCTL = 158  # x86-64


def _request_amx() -> bool:
    """Ask Linux for the tile registers, once per process: they are off by default, as their state is large."""
    if platform.system() != "Linux":
        return False
    return ctypes.CDLL(None).syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XSTATE_TILE_DATA) == 0


_features = host_features()
HAS_AVX512_BF16 = bool(_features.get("avx512bf16") and _features.get("avx512bw"))
HAS_AMX = bool(HAS_AVX512_BF16 and _features.get("amx-tile") and _features.get("amx-bf16") and _request_amx())


def _round32(builder, low, high):
    """Round two vectors of 16 floats to 32 bfloat16, `low` first, as 32 x i16."""
    convert = declare(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", _bf32x, [f16x, f16x])
    return builder.bitcast(builder.call(convert, [high, low]), ir.VectorType(ir.IntType(16), 32))


@intrinsic
def pack_pairs(typingctx, target, source):
    """Round 32 floats at `source` to one row of a tile at `target` (64 bytes)."""

    def codegen(context, builder, signature, args):
        target, source = args
        row = _round32(builder, load(builder, source), load(builder, offset(builder, source, 64)))
        store(builder, row, target)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp), codegen


@intrinsic
def pack_interleaved(typingctx, target, first, second):
    """Round 16 floats at `first` and 16 at `second` to 16 words at `target`, `first` in the low halves."""

    def codegen(context, builder, signature, args):
        target, first, second = args
        both = _round32(builder, load(builder, first), load(builder, second))
        order = [i // 2 + 16 * (i % 2) for i in range(32)]
        mask = ir.Constant(ir.VectorType(i32, 32), order)
        store(builder, builder.shuffle_vector(both, both, mask), target)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.uintp), codegen


@intrinsic
def transpose_tile(typingctx, target, source, stride):
    """Write the transpose of 16 x 16 words, rows `stride` bytes apart at `source`, to the tile at `target`."""

    def codegen(context, builder, signature, args):
        target, source, stride = args
        rows = [load(builder, builder.add(source, builder.mul(stride, ir.Constant(i64, i))), i32x) for i in range(16)]
        # Four rounds of the butterfly: round s swaps the off-diagonal blocks of s x s within blocks of 2s x 2s.
        for s in (1, 2, 4, 8):
            low = ir.Constant(i32x, [c if not c & s else 16 + c - s for c in range(16)])
            high = ir.Constant(i32x, [c + s if not c & s else 16 + c for c in range(16)])
            swapped = list(rows)
            for i in range(16):
                if not i & s:
                    swapped[i] = builder.shuffle_vector(rows[i], rows[i + s], low)
                    swapped[i + s] = builder.shuffle_vector(rows[i], rows[i + s], high)
            rows = swapped
        for i, row in enumerate(rows):
            store(builder, row, offset(builder, target, 64 * i))
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.intp), codegen


@intrinsic
def tiles_on(typingctx):
    """Make all eight tile registers 16 rows of 64 bytes (palette 1); do nothing without AMX."""

    def codegen(context, builder, signature, args):
        if HAS_AMX:
            settings = np.zeros(64, np.uint8)
            settings[0], settings[16:32:2], settings[48:56] = 1, 64, 16
            constant = ir.Constant(ir.ArrayType(i8, 64), bytearray(settings))
            address = cgutils.global_constant(builder, "tile_settings", constant)
            configure = declare(builder, "llvm.x86.ldtilecfg", ir.VoidType(), [pointer])
            builder.call(configure, [builder.bitcast(address, pointer)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def tiles_off(typingctx):
    """Release the tile registers."""

    def codegen(context, builder, signature, args):
        if HAS_AMX:
            builder.call(declare(builder, "llvm.x86.tilerelease", ir.VoidType(), []), [])
        return context.get_dummy_value()

    return types.void(), codegen


_block_signature = types.void(
    types.uintp, types.intp, types.uintp, types.intp, types.uintp, types.intp, types.intp, types.intp
)


@intrinsic
def block_amx(typingctx, a, a_panel, b, b_panel, c, c_row, n_tiles, add):
    """Compute 32 x 32 of C (add = 0) or add to it (add = 1) on AMX tiles: two panels of A times two of B, n_tiles long.

    `tiles_on` must have run on this thread.
    """

    def codegen(context, builder, signature, args):
        a, a_panel, b, b_panel, c, c_row, n_tiles, add = args
        void, stride = ir.VoidType(), ir.Constant(i64, 64)
        load_tile = declare(builder, "llvm.x86.tileloadd64", void, [i8, pointer, i64])
        store_tile = declare(builder, "llvm.x86.tilestored64", void, [i8, pointer, i64])
        zero = declare(builder, "llvm.x86.tilezero", void, [i8])
        multiply = declare(builder, "llvm.x86.tdpbf16ps", void, [i8, i8, i8])

        def tile(n):
            return ir.Constant(i8, n)

        def at(address):
            return builder.inttoptr(address, pointer)

        corners = [
            (2 * i + j, offset(builder, builder.add(c, builder.mul(c_row, ir.Constant(i64, 16 * i))), 64 * j))
            for i in range(2)
            for j in range(2)
        ]
        with builder.if_else(builder.icmp_signed("!=", add, ir.Constant(i64, 0))) as (adding, fresh):
            with adding:
                for n, address in corners:
                    builder.call(load_tile, [tile(n), at(address), c_row])
            with fresh:
                for n, _ in corners:
                    builder.call(zero, [tile(n)])
        with cgutils.for_range(builder, n_tiles) as rounds:
            shift = builder.mul(rounds.index, ir.Constant(i64, TILE_BYTES))
            a_tile, b_tile = builder.add(a, shift), builder.add(b, shift)
            builder.call(load_tile, [tile(4), at(a_tile), stride])
            builder.call(load_tile, [tile(6), at(b_tile), stride])
            builder.call(load_tile, [tile(5), at(builder.add(a_tile, a_panel)), stride])
            builder.call(load_tile, [tile(7), at(builder.add(b_tile, b_panel)), stride])
            for n in range(4):
                builder.call(multiply, [tile(n), tile(4 + n // 2), tile(6 + n % 2)])
        for n, address in corners:
            builder.call(store_tile, [tile(n), at(address), c_row])
        return context.get_dummy_value()

    return _block_signature, codegen


@intrinsic
def block_avx512(typingctx, a, a_panel, b, b_panel, c, c_row, n_tiles, add):
    """Compute 32 x 32 of C (add = 0) or add to it (add = 1) with vdpbf16ps: 8 x 32 at a time in 16 registers."""

    def codegen(context, builder, signature, args):
        a, a_panel, b, b_panel, c, c_row, n_tiles, add = args
        multiply = declare(builder, "llvm.x86.avx512bf16.dpbf16ps.512", f16x, [f16x, _bf32x, _bf32x])
        adding = builder.icmp_signed("!=", add, ir.Constant(i64, 0))
        for first in range(0, 32, 8):
            corners = [
                offset(builder, builder.add(c, builder.mul(c_row, ir.Constant(i64, first + i))), 64 * j)
                for i in range(8)
                for j in range(2)
            ]
            sums = [cgutils.alloca_once_value(builder, ir.Constant(f16x, None)) for _ in corners]
            with builder.if_then(adding):
                for total, corner in zip(sums, corners, strict=True):
                    builder.store(load(builder, corner), total)
            panel = builder.add(a, builder.mul(a_panel, ir.Constant(i64, first // 16)))
            # One round a word of K: a tile of A holds 16 words a row, so word p lies in tile p // 16.
            with cgutils.for_range(builder, builder.mul(n_tiles, ir.Constant(i64, 16))) as rounds:
                in_tile = builder.mul(builder.lshr(rounds.index, ir.Constant(i64, 4)), ir.Constant(i64, TILE_BYTES))
                word = builder.shl(builder.and_(rounds.index, ir.Constant(i64, 15)), ir.Constant(i64, 2))
                a_word = offset(builder, builder.add(panel, builder.add(in_tile, word)), 64 * (first % 16))
                b_row = builder.add(b, builder.shl(rounds.index, ir.Constant(i64, 6)))
                columns = [
                    builder.bitcast(load(builder, row, i32x), _bf32x) for row in (b_row, builder.add(b_row, b_panel))
                ]
                for i in range(8):
                    scalar = builder.load(builder.inttoptr(offset(builder, a_word, 64 * i), i32.as_pointer()))
                    row = builder.bitcast(broadcast(builder, scalar), _bf32x)
                    for total, column in zip(sums[2 * i : 2 * i + 2], columns, strict=True):
                        builder.store(builder.call(multiply, [builder.load(total), row, column]), total)
            for total, corner in zip(sums, corners, strict=True):
                store(builder, builder.load(total), corner)
        return context.get_dummy_value()

    return _block_signature, codegen


# The choice is made once, at import: code for an instruction set that the processor lacks does not compile.
block = block_amx if HAS_AMX else block_avx512


@njit(nogil=True)
def multiply(a, b, c, n_rows, n_columns, c_row, n_tiles, add):
    """Compute C (n_rows, n_columns) = A B, or C += A B with add = 1, from whole packed operands.

    `c_row` is the bytes between rows of C; panels of A and B are `n_tiles` tiles long.
    """
    panel = n_tiles * TILE_BYTES
    for j in range(0, n_columns, BLOCK):
        for i in range(0, n_rows, BLOCK):
            block(a + i // 16 * panel, panel, b + j // 16 * panel, panel, c + i * c_row + j * 4, c_row, n_tiles, add)


@njit(nogil=True)
def pack_a(target, source, row_bytes, n_rows, n_tiles):
    """Pack float32 rows (n_rows, 32 n_tiles) as operand A; rows lie `row_bytes` apart."""
    for i in range(n_rows):
        row = target + (i // 16 * n_tiles * 16 + i % 16) * 64
        for t in range(n_tiles):
            pack_pairs(row + t * TILE_BYTES, source + i * row_bytes + t * 128)


@njit(nogil=True)
def pack_b(target, panel_bytes, source, row_bytes, n_words, n_panels):
    """Pack float32 rows (2 n_words, 16 n_panels) as operand B: K runs down the rows."""
    for p in range(n_words):
        first = source + 2 * p * row_bytes
        for j in range(n_panels):
            pack_interleaved(target + j * panel_bytes + p * 64, first + j * 64, first + row_bytes + j * 64)


@njit(nogil=True)
def pack_b_transposed(target, source, row_bytes, n_rows, n_tiles, scratch):
    """Pack the transpose of float32 rows (n_rows, 32 n_tiles) as operand B; `scratch` is one tile."""
    for i in range(0, n_rows, 16):
        for t in range(n_tiles):
            for r in range(16):
                pack_pairs(scratch + r * 64, source + (i + r) * row_bytes + t * 128)
            transpose_tile(target + (i // 16 * n_tiles + t) * TILE_BYTES, scratch, 64)
