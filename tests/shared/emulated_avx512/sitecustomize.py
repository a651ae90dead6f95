"""Emulate AVX512 and AVX512-BF16, so that any processor runs the code paths for both.

Put this folder on `PYTHONPATH`: Python imports `sitecustomize` at the start of every process, worker processes too.
LLVM lowers vectors of 16 floats to whatever the processor has; only four instructions need a definition here. They are
defined as functions in LLVM's own language, in place of its intrinsics for x86 (Intel, "Intel 64 and IA-32
Architectures Software Developer's Manual", volume 2: VCVTNE2PS2BF16, VDPBF16PS, VRNDSCALEPS, VSCALEFPS).
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

TARGET = "xmlsgd.devices.cpu.intrinsics.llvm"
FEATURES = dict.fromkeys(("avx512f", "avx512dq", "avx512bw", "avx512bf16"), True)


def emulate(module):
    """Let the module of intrinsics report the features, and declare the four instructions as functions."""
    from llvmlite import ir
    from numba import config

    declare = module.declare
    i16, i32x, f16x = ir.IntType(16), module.i32x, module.f16x

    def constant(value):
        return ir.Constant(i32x, [value] * 16)

    def to_bfloat(builder, x):
        """Round 16 floats to the nearest bfloat16, ties to even; keep NaN; return 16 x i32 below 2**16."""
        bits = builder.bitcast(x, i32x)
        even = builder.and_(builder.lshr(bits, constant(16)), constant(1))
        rounded = builder.lshr(builder.add(bits, builder.add(even, constant(0x7FFF))), constant(16))
        quiet = builder.or_(builder.lshr(bits, constant(16)), constant(0x40))
        return builder.select(builder.fcmp_unordered("uno", x, x), quiet, rounded)

    def cvtne2ps2bf16(builder, high, low):
        words = [builder.trunc(to_bfloat(builder, x), ir.VectorType(i16, 16)) for x in (low, high)]
        order = ir.Constant(ir.VectorType(ir.IntType(32), 32), list(range(32)))
        return builder.shuffle_vector(*words, order)

    def dpbf16ps(builder, total, a, b):
        a, b = (builder.bitcast(operand, i32x) for operand in (a, b))
        fma = declare(builder, "llvm.fma.v16f32", f16x, [f16x] * 3)
        for part in (
            lambda x: builder.and_(x, constant(0xFFFF0000 - (1 << 32))),
            lambda x: builder.shl(x, constant(16)),
        ):
            total = builder.call(fma, [*(builder.bitcast(part(x), f16x) for x in (a, b)), total])
        return total

    def rndscale(builder, x, *_):
        return builder.call(declare(builder, "llvm.rint.v16f32", f16x, [f16x]), [x])

    def scalef(builder, x, exponent, *_):
        to_integer = declare(builder, "llvm.fptosi.sat.v16i32.v16f32", i32x, [f16x])
        n = builder.call(to_integer, [exponent])
        n = builder.select(builder.icmp_signed("<", n, constant(-127)), constant(-127), n)  # 2**-127 becomes zero
        power = builder.bitcast(builder.shl(builder.add(n, constant(127)), constant(23)), f16x)
        zero, least = (ir.Constant(f16x, [value] * 16) for value in (0.0, float("-inf")))
        return builder.select(builder.fcmp_ordered("==", exponent, least), zero, builder.fmul(x, power))  # NaN too

    bodies = {
        "llvm.x86.avx512bf16.cvtne2ps2bf16.512": cvtne2ps2bf16,
        "llvm.x86.avx512bf16.dpbf16ps.512": dpbf16ps,
        "llvm.x86.avx512.mask.rndscale.ps.512": rndscale,
        "llvm.x86.avx512.mask.scalef.ps.512": scalef,
    }

    def declare_or_define(builder, name, returns, arguments):
        """Return the function `name`: a definition for the four instructions, else LLVM's intrinsic."""
        if name not in bodies:
            return declare(builder, name, returns, arguments)
        own = "emulated." + name.split("512.", 1)[-1]
        known = builder.module.globals.get(own)
        if known:
            return known
        function = ir.Function(builder.module, ir.FunctionType(returns, arguments), own)
        function.linkage = "internal"
        function.attributes.add("alwaysinline")
        inside = ir.IRBuilder(function.append_basic_block())
        inside.ret(inside.bitcast(bodies[name](inside, *function.args), returns))
        return function

    module.declare = declare_or_define
    told = config.CPU_NAME or config.CPU_FEATURES is not None  # to build for another processor, by a test
    module.host_features = lambda: {} if told else dict(FEATURES)


class Patch(MetaPathFinder):
    """Patch the module of intrinsics once it is loaded, before others import names from it."""

    def find_spec(self, name, path=None, target=None):
        """Return the spec of the module with a loader that patches it; None for any other name."""
        if name != TARGET:
            return None
        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            emulate(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Patch())
