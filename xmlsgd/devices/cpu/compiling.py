"""Compile kernels, and cache them by a hash of the sources.

Numba checks whether the file that defines a cached kernel has changed. It does not check the files whose functions and
constants the kernel contains (as in numba issue 6845), nor the instruction sets of the processor. So both are part of
the name under which a kernel is cached, and no process finds a kernel of other sources.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, types
from numba.core import cgutils, ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.untyped_passes import LiteralUnroll
from numba.extending import intrinsic

from ...data.files.numba_cache import cached
from .intrinsics import avx512, bf16

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FOLDER = Path(__file__).parent


def stamp_of(sources: Iterable[Path], beside: str = "") -> str:
    """Return a hash of the contents of files, and of one more text."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources) + beside.encode()).hexdigest()[:12]


STAMP = stamp_of((*sorted(FOLDER.rglob("*.py")), FOLDER.parent / "base.py"))
PROCESSOR = "".join(str(int(has)) for has in (bf16.HAS_AMX, bf16.HAS_AVX512_BF16, avx512.HAS_AVX512))


class Kernel:
    """A function compiled in one or two forms that release the GIL.

    `alone` runs on the calling thread: `prange` is a plain loop, so any number of Python threads may call it at once.
    `threaded` runs `prange` on Numba's threads, with the same results. A kernel `of_part` has no `threaded`: its first
    arguments are `part` and `n_parts`, and a call does part 0, 1, ... or n_parts - 1 of the work. Kernels are compiled
    with `error_model="numpy"`, as Python's check for division by zero is a branch, which keeps LLVM from vector code.
    """

    def __init__(self, function: FunctionType, of_part: bool = False, **options: Any) -> None:
        options = {"nogil": True, "error_model": "numpy", **options}
        self.alone = _cached(function, "alone", {**options, "pipeline_class": BorrowingCompiler})
        self.threaded: Any = None
        if not of_part:
            self.threaded = _cached(function, "threaded", {**options, "parallel": True})

    @property
    def forms(self) -> list[Any]:
        """Return the compiled forms, dispatchers of Numba."""
        return [self.alone] if self.threaded is None else [self.alone, self.threaded]


def kernel(**options: Any) -> Callable[[Any], Kernel]:
    """Return a decorator that makes a `Kernel` with these options of Numba."""
    return lambda function: Kernel(function, **options)


def kernel_of_part(**options: Any) -> Callable[[Any], Kernel]:
    """Return a decorator that makes a `Kernel` of a part: it compiles faster than `prange`, and starts more slowly."""
    return lambda function: Kernel(function, of_part=True, **options)


@njit(nogil=True)
def range_of_part(n, part, n_parts):
    """Return the range that a part handles of n items: parts are adjacent, and about equally long."""
    return range(n * part // n_parts, n * (part + 1) // n_parts)


@intrinsic
def borrowed(typingctx, value):
    """Return an array without reference counting; return a number unchanged. The caller keeps the array alive.

    Else Numba would count a reference for each row that a kernel takes of a matrix, some nanoseconds per row; in
    `threaded` kernels it does not.
    """

    def codegen(context, builder, signature, args):
        if not isinstance(value, types.Array):
            return args[0]
        array = context.make_array(value)(context, builder, args[0])
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()

    return value(value), codegen


@register_pass(mutates_CFG=False, analysis_only=False)
class BorrowArguments(FunctionPass):
    """Begins a function with `x = borrowed(x)` for each argument x."""

    _name = "borrow_arguments"

    def __init__(self) -> None:  # abstract in Numba
        super().__init__()

    def run_pass(self, state):
        """Change the instructions of the function."""
        func_ir = state.func_ir
        first = func_ir.blocks[min(func_ir.blocks)]
        for given in [line for line in first.body if isinstance(line, ir.Assign) and isinstance(line.value, ir.Arg)]:
            loc, argument = given.loc, given.target
            given.target = ir.Var(argument.scope, f"{argument.name}.given", loc)
            function = ir.Var(argument.scope, f"{argument.name}.borrowed", loc)
            lines = [
                ir.Assign(ir.Global("borrowed", borrowed, loc), function, loc),
                ir.Assign(ir.Expr.call(function, [given.target], (), loc), argument, loc),
            ]
            at = first.body.index(given) + 1
            first.body[at:at] = lines
        func_ir._definitions = build_definitions(func_ir.blocks)
        return True


class BorrowingCompiler(CompilerBase):
    """Numba's compiler with `BorrowArguments`."""

    def define_pipelines(self):
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(BorrowArguments, LiteralUnroll)  # branches for arguments that are None are gone then
        passes.finalize()
        return [passes]


def _cached(function: FunctionType, form: str, options: dict[str, Any]) -> Any:
    """Return Numba's dispatcher of a function, named after function, form, sources and processor for the cache."""
    copy = FunctionType(function.__code__, function.__globals__, function.__name__)
    copy.__qualname__ = f"{function.__name__}_{form}_{STAMP}_{PROCESSOR}"
    copy.__doc__, copy.__module__ = function.__doc__, function.__module__
    return cached(njit(**options)(copy))


class _Unlocked:
    """The memory of a read-only array, with an array interface that calls it writable."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # keeps the memory alive
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def for_kernels(array: np.ndarray) -> np.ndarray:
    """Return an array; a read-only one as a writable view, for kernels that do not write it.

    Numba has another type for read-only arrays, such as memory maps, for which it would compile every kernel again.
    """
    return array if array.flags.writeable else np.asarray(_Unlocked(array))
