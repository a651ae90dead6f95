"""Compile kernels twice, for the calling thread and for Numba's threads, and cache them by a hash of the sources.

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
from numba.core import cgutils
from numba.extending import intrinsic

from ...data.files.compiled import cached
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
    """A function in two compiled forms with the same results: `alone` on the calling thread, `threaded` on Numba's.

    In `alone`, `prange` is a plain loop. It does not use Numba's threads, so any number of Python threads may run it at
    once. Both forms release the GIL. They are compiled with `error_model="numpy"`, as Python's check for division by
    zero is a branch, which keeps LLVM from vector code.
    """

    def __init__(self, function: FunctionType, **options: Any) -> None:
        options = {"nogil": True, "error_model": "numpy", **options}
        self.alone = _cached(_borrowing(function, njit(**options)(function)), function, "alone", options)
        copy = FunctionType(function.__code__, function.__globals__, function.__name__)
        self.threaded = _cached(copy, function, "threaded", {**options, "parallel": True})


def kernel(**options: Any) -> Callable[[Any], Kernel]:
    """Return a decorator that makes a `Kernel` with these options of Numba."""
    return lambda function: Kernel(function, **options)


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


def _borrowing(function: FunctionType, body: Any) -> FunctionType:
    """Return a function with the arguments of `function`, which passes them, `borrowed`, to its dispatcher `body`."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    source = f"def passing({', '.join(names)}): return body({', '.join(f'borrowed({name})' for name in names)})"
    space = {"body": body, "borrowed": borrowed}
    exec(compile(source, code.co_filename, "exec"), space)  # with the file name, by which Numba finds its cache
    return space["passing"]


def _cached(copy: FunctionType, function: FunctionType, form: str, options: dict[str, Any]) -> Any:
    """Return Numba's dispatcher of `copy`, named after `function`, form, sources and processor for the cache."""
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
