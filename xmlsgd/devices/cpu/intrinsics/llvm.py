"""LLVM instructions that Numba does not offer: vectors of 16 floats at an address, and prefetches.

All addresses are integers.
"""

from __future__ import annotations

import platform

from llvmlite import binding, ir
from numba import config, njit, types
from numba.extending import intrinsic

LANES = 16
CACHE_LINE = 64  # bytes
i8, i32, i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
pointer = i8.as_pointer()
f16x = ir.VectorType(ir.FloatType(), LANES)
i32x = ir.VectorType(i32, LANES)


def host_features() -> dict[str, bool]:
    """Return LLVM's features of this processor; none if Numba is configured for another one."""
    if platform.machine() not in ("x86_64", "AMD64") or config.CPU_NAME or config.CPU_FEATURES is not None:
        return {}
    return dict(binding.get_host_cpu_features())


def declare(builder, name, returns, arguments):
    """Return the LLVM function `name`, declared in the module on first use."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(returns, arguments), name)


def load(builder, address, of=f16x):
    """Load 64 bytes from an integer address that need not be aligned."""
    value = builder.load(builder.inttoptr(address, of.as_pointer()))
    value.align = 4
    return value


def store(builder, value, address):
    """Store 64 bytes to an integer address that need not be aligned."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 4


def element_pointer(context, builder, signature, args):
    """Return a pointer to `array[index]`; array and index are the first two arguments of the intrinsic."""
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.gep(data, [args[1]])


def offset(builder, address, n_bytes):
    """Return an address `n_bytes` further on."""
    return builder.add(address, ir.Constant(i64, n_bytes))


def broadcast(builder, value, lanes=i32x):
    """Return a number in all lanes of a vector of type `lanes`."""
    undefined = ir.Constant(lanes, ir.Undefined)
    lane = builder.insert_element(undefined, value, ir.Constant(i32, 0))
    return builder.shuffle_vector(lane, undefined, ir.Constant(ir.VectorType(i32, lanes.count), [0] * lanes.count))


@intrinsic
def prefetch(typingctx, array, index):
    """Prefetch the cache line of an element of a contiguous array into level 2; the index may lie past the end.

    It takes an index, as the address `array.ctypes.data` would update a reference count, which takes longer than a
    prefetch saves.
    """

    def codegen(context, builder, signature, args):
        ask = declare(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, i32, i32, i32])
        flags = [ir.Constant(i32, flag) for flag in (0, 2, 1)]  # read, level 2, data
        builder.call(ask, [builder.bitcast(element_pointer(context, builder, signature, args), pointer), *flags])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@njit(nogil=True)
def prefetch_row(matrix, row):
    """Prefetch a row of a contiguous matrix; it may lie past the end."""
    size = matrix.shape[1]
    for column in range(0, size, CACHE_LINE // matrix.itemsize):
        prefetch(matrix, row * size + column)


@intrinsic
def index_among_8(typingctx, array, index, wanted):
    """Return which of the eight integers from `array[index]` on equals `wanted`, 0 to 7; 8 if none does."""

    def codegen(context, builder, signature, args):
        number = args[2].type
        lanes = ir.VectorType(number, 8)
        found = builder.load(builder.bitcast(element_pointer(context, builder, signature, args), lanes.as_pointer()))
        found.align = number.width // 8
        copies = broadcast(builder, args[2], lanes)
        equal = builder.bitcast(builder.icmp_unsigned("==", found, copies), i8)
        bits = builder.or_(builder.zext(equal, i32), ir.Constant(i32, 1 << 8))
        count = declare(builder, "llvm.cttz.i32", i32, [i32, ir.IntType(1)])
        return builder.zext(builder.call(count, [bits, ir.Constant(ir.IntType(1), 1)]), i64)

    return types.uint64(array, types.intp, array.dtype), codegen
