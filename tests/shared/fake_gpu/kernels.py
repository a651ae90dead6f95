"""The CUDA kernels on the CPU, compiled by g++ with `cuda_shim.h`; they refuse what CuPy refuses."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
import threading
from pathlib import Path

import numpy as np

from xmlsgd.devices.cuda.kernels import kernel_parameters
from xmlsgd.devices.cuda.runtime import SHARED_LIMIT

from ..needs import COMPILER, SANITIZED
from .memory import DeviceArray

HEADER = Path(__file__).with_name("cuda_shim.h")

FLAGS = (
    *(("-fsanitize=address", "-g") if SANITIZED else ()),
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-U_FORTIFY_SOURCE",
)
OPT_IN_LIMIT = 227 << 10  # bytes of shared memory that a block of Hopper may ask for
ONE_AT_A_TIME = threading.Lock()  # a library has the fibers of one block


class _Kernel:
    def __init__(self, function, name, seed, memory):
        self.function, self.name, self.seed, self.memory = function, name, seed, memory
        function.restype = ctypes.c_char_p
        self.max_dynamic_shared_size_bytes = SHARED_LIMIT

    def __call__(self, grid, block, arguments, *, shared_mem=0):
        assert all(type(part) is tuple for part in (grid, block, arguments)), "CuPy takes tuples"
        assert block[0] in range(32, 1025, 32), "blocks are whole warps, at most 1024 threads"
        assert grid[0] in range(1, 2**31), "a grid has at most 2^31 - 1 blocks a row"
        assert grid[1] in range(1, 2**16), "and at most 65,535 rows"
        assert shared_mem <= self.max_dynamic_shared_size_bytes <= OPT_IN_LIMIT, "more shared memory than a block has"
        pointers = (ctypes.c_void_p * len(arguments))()
        kept: list = []
        for i, argument in enumerate(arguments):
            if isinstance(argument, DeviceArray):
                assert argument.flags.c_contiguous, f"{self.name}: argument {i} has gaps"
                assert argument.block.device == self.memory.streams.here().device, "memory of another GPU"
                kept.append(ctypes.c_void_p(argument.data.ptr))
            else:
                assert isinstance(argument, np.generic), f"{self.name}: argument {i} is a {type(argument).__name__}"
                kept.append(ctypes.create_string_buffer(argument.tobytes(), argument.nbytes))
            pointers[i] = ctypes.addressof(kept[i])
        self.memory.streams.here().do(lambda: self._run(grid, block, shared_mem, pointers, (arguments, kept)))

    def _run(self, grid, block, shared_mem, pointers, alive):
        """Run the kernel; `alive` is what `pointers` point into."""
        with ONE_AT_A_TIME:
            failure = self.function((ctypes.c_uint * 2)(*grid), block[0], shared_mem, pointers, self.seed)
        if failure:
            raise RuntimeError(f"{self.name}: {failure.decode()}")
        self.memory.check(self.name)


class RawModule:
    """The kernels of a source, compiled by g++; a `seed` above 0 shuffles threads and turns the order of blocks."""

    def __init__(self, memory, code, options, seed=0, flags=()):
        assert (type(code), type(options)) == (str, tuple), "CuPy takes a text and a tuple"
        defines = [option for option in options if option.startswith("-D")]
        names = kernel_parameters(code, np.dtype(np.uint16))
        exports = "\n".join(f"SHIM_EXPORT({name})" for name in names)
        source = f'#include "{HEADER.name}"\n{code}\n{exports}\n'
        command = [COMPILER, *FLAGS, *defines, *flags, "-I", str(HEADER.parent)]
        self.library, self.seed, self.memory = ctypes.CDLL(str(_compiled(source, command))), seed, memory

    def get_function(self, name):
        return _Kernel(getattr(self.library, f"shim_{name}"), name, self.seed, self.memory)


def _compiled(source, command):
    """Return the library of a source: compiled once on a machine, then found by the hash of all that it depends on.

    Processes that compile it at the same time each rename a whole library into place.
    """
    stamp = hashlib.sha256("\0".join([source, HEADER.read_text(), *command]).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xmlsgd-tests"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{stamp}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            written = Path(work) / "kernels.cpp"
            written.write_text(source)
            subprocess.run([*command, str(written), "-o", f"{work}/kernels.so"], check=True)
            Path(work, "kernels.so").replace(library)
    return library


def planted(old, new, code, hopper=False):
    """Return the source with a bug in every place of `old`: that of the kernel for Hopper, or that of all others."""
    if ("hopper_exponentials" in code) != hopper:
        return code
    if old not in code:  # no AssertionError, by which tests tell that they have found a bug
        raise LookupError(f"no place for a bug: {old}")
    return code.replace(old, new)
