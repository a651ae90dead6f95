"""How a kernel is compiled: for the calling thread alone and for Numba's threads, each cached under the sources' stamp.

Numba compares a cached kernel with the file that defines it, not with the files whose functions and constants it
compiled in (numba issue 6845 is of this kind), nor with what the processor was found to do. So both are part of the
name under which a kernel is cached: one of other sources is never found, however many processes share the cache.
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
    """Return a hash of the contents of files, and of a text beside them."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources) + beside.encode()).hexdigest()[:12]


STAMP = stamp_of((*sorted(FOLDER.rglob("*.py")), FOLDER.parent / "base.py"))
PROCESSOR = "".join(str(int(has)) for has in (bf16.HAS_AMX, bf16.HAS_AVX512_BF16, avx512.HAS_AVX512))


class Kernel:
    """A function in two compiled forms that do the same: `alone` on the calling thread, `threaded` on Numba's.

    `prange` is a plain loop in `alone`, which never touches Numba's threads: any number of Python threads may run it
    at once. Both release the GIL. `error_model="numpy"` because Python's check for division by zero is a branch, and
    a branch keeps LLVM from vector code.
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
    """Return an array that does not count its users, as the caller keeps it alive; a number as it is.

    Numba would count each row that a kernel takes of a matrix, some nanoseconds a row; for `prange` it leaves that out.
    """

    def codegen(context, builder, signature, args):
        if not isinstance(value, types.Array):
            return args[0]
        array = context.make_array(value)(context, builder, args[0])
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()

    return value(value), codegen


def _borrowing(function: FunctionType, body: Any) -> FunctionType:
    """Return a function with the arguments of `function` that passes them on to its dispatcher `body`, borrowed."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    source = f"def passing({', '.join(names)}): return body({', '.join(f'borrowed({name})' for name in names)})"
    space = {"body": body, "borrowed": borrowed}
    exec(compile(source, code.co_filename, "exec"), space)  # the file, because Numba keeps its cache by it
    return space["passing"]


def _cached(copy: FunctionType, function: FunctionType, form: str, options: dict[str, Any]) -> Any:
    """Return Numba's dispatcher of `copy`, whose name is that of its files in the cache."""
    copy.__qualname__ = f"{function.__name__}_{form}_{STAMP}_{PROCESSOR}"
    copy.__doc__, copy.__module__ = function.__doc__, function.__module__
    return cached(njit(**options)(copy))


class _Unlocked:
    """The memory of a read-only array under an interface that says it may be written."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # keeps the memory alive
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def for_kernels(array: np.ndarray) -> np.ndarray:
    """Return an array, a read-only one as if it were not; the kernels that it goes to do not write it.

    Numba has a type of its own for read-only arrays, such as memory maps, and would compile every kernel once more.
    """
    return array if array.flags.writeable else np.asarray(_Unlocked(array))
