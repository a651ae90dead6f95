"""A GPU that is not there: CuPy's names over NumPy, `cuda.cu` compiled by g++ (`cuda_shim.h`), cuBLAS's product.

What the device's host code asks of CuPy runs unchanged. New memory is filled with NaN and has guards on both sides,
which every launch looks at; arrays of the "GPU" do not mix with those of the process.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fake_nccl import FakeNccl
from fake_streams import ENTERED, Event, Streams

from xmlsgd.devices.base import EXACT
from xmlsgd.devices.cuda import CUDA
from xmlsgd.devices.cuda_chunks import CHUNK_BYTES
from xmlsgd.devices.cuda_runtime import CUDA_R_16BF, SHARED_LIMIT, SOURCE, Runtime

HEADER = Path(__file__).with_name("cuda_shim.h")
COMPILER = shutil.which("g++")
NEEDS_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no g++ to run the CUDA kernels on the CPU")
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # tests/sanitize.py
FLAGS = (
    *(("-fsanitize=address",) if SANITIZED else ()),
    "-std=c++17",
    "-O1",
    "-g",
    "-fPIC",
    "-shared",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-U_FORTIFY_SOURCE",
)
ONE_AT_A_TIME = threading.Lock()  # a library has the fibers of one block
POISON = 0xFF  # of every byte of new memory: NaN as float32, -1 as an integer
GUARD, GUARD_BYTES = 0xA5, 4096


TAKEN = (np.einsum, np.zeros_like)  # functions that CuPy answers for its arrays, as far as they are needed


class Memory:
    """The memory of a "GPU": arrays between guards; `live`, `peak` and `capacity` are bytes."""

    def __init__(self, streams, capacity=1 << 40):
        self.allocated, self.capacity, self.peak, self.streams = 0, capacity, 0, streams
        self._blocks, self._lock = weakref.WeakValueDictionary(), threading.RLock()  # devices of several threads

    def _all(self):
        with self._lock:
            return list(self._blocks.values())

    @property
    def live(self):
        return sum(block.n_bytes for block in self._all())

    def empty(self, shape, dtype):
        """Return a new array."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self.live + size > self.capacity:
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes (allocated so far: {self.live:,} bytes).")
        block = _Block(size)
        with self._lock:
            self.allocated += 1
            self.peak = max(self.peak, self.live + size)
            self._blocks[self.allocated] = block
        self.streams.here().allocate()
        host = np.frombuffer(block.raw, dtype, int(np.prod(shape)), block.first).reshape(shape)
        return DeviceArray(host, block, self.streams)

    def holds(self, address, size):
        """Return whether these bytes lie in one array."""
        return size == 0 or self.device_of(address, size) is not None

    def device_of(self, address, size=1):
        """Return the GPU of an array that holds these bytes, None where there is none."""
        return getattr(self.block_of(address, size), "device", None)

    def block_of(self, address, size=1):
        """Return the memory of an array that holds these bytes, None where there is none."""
        for block in self._all():
            first = block.raw.ctypes.data + block.first
            if first <= address and address + size <= first + block.n_bytes:
                return block
        return None

    def check(self, who):
        """Raise `RuntimeError` where `who` has written beside an array."""
        for block in self._all():
            if not block.intact():
                raise RuntimeError(f"{who} writes outside an array of {block.n_bytes} bytes")


class OutOfMemoryError(MemoryError):
    """What CuPy raises."""


def _forbid(address, size):
    """Let the address sanitizer report who reads or writes these bytes; NumPy may."""
    ctypes.CDLL(None).__asan_poison_memory_region(ctypes.c_void_p(address), ctypes.c_size_t(size))


class _Block:
    """The bytes of an array, from `first` on, with a guard on each side; lives as long as a view of them."""

    def __init__(self, n_bytes):
        self.device = ENTERED.devices[-1]
        self.raw = np.full(n_bytes + 2 * GUARD_BYTES + 64, GUARD, np.uint8)
        address, self.n_bytes = self.raw.ctypes.data, n_bytes
        self.first = GUARD_BYTES + -(address + GUARD_BYTES) % 64
        end = self.first + n_bytes
        self.raw[self.first : end] = POISON
        if SANITIZED:
            _forbid(address, self.first)
            _forbid(address + end, len(self.raw) - end)

    def intact(self):
        return (self.raw[: self.first] == GUARD).all() and (self.raw[self.first + self.n_bytes :] == GUARD).all()


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array in "GPU" memory: what CuPy's arrays have, as far as it is used; whatever else is asked for is missing.

    `host` is what lies there, for tests. Nothing turns it into an array of the process unasked, no such array takes
    part in its arithmetic, one element is still an array, and all work is on a stream that somebody has entered: on
    CuPy's own it would not wait for those of the devices.
    """

    def __init__(self, host, block, streams):
        self.host, self.block, self.streams = host, block, streams
        self.dtype, self.shape, self.size, self.ndim = host.dtype, host.shape, host.size, host.ndim
        self.strides, self.nbytes, self.flags = host.strides, host.nbytes, host.flags
        self.data = SimpleNamespace(ptr=host.ctypes.data)  # the address as CuPy gives it

    def _like(self, host):
        return DeviceArray(host, self.block, self.streams)

    def _place(self, host):
        made = self.streams.memory.empty(host.shape, host.dtype)
        made.host[...] = host
        return made

    def reshape(self, *shape):
        """Return a view of another shape."""
        reshaped = self.host.reshape(*shape)
        assert np.shares_memory(reshaped, self.host) or not self.size, "this would be a copy"
        return self._like(reshaped)

    def view(self, dtype):
        """Return the same bytes as another dtype."""
        return self._like(self.host.view(dtype))

    def copy(self):
        """Return a copy."""
        return self._work(self.host.copy)

    def sort(self, axis=-1):
        """Sort in place, on the current stream."""
        assert self.flags.c_contiguous, "CuPy sorts a copy of what is not contiguous"
        self.streams.here().allocate()
        self.streams.here().do(lambda: self.host.sort(axis))

    def _work(self, compute):
        """Return what is computed at once, after all that the current stream has been given."""
        self.streams.here().allocate()
        self.streams.here().synchronize()
        return self._place(np.asarray(compute()))

    def __len__(self):
        return len(self.host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        _check_key(key)
        found = self.host[key]
        return self._like(found if isinstance(found, np.ndarray) else self.host[(*_tuple(key), ...)])

    def __setitem__(self, key, value):
        _check_key(key)
        assert getattr(value, "block", self.block).device == self.block.device, "memory of another GPU"
        value = _operand(value, "assignment")
        self.streams.here().synchronize()
        self.host[key] = value

    def __float__(self):
        self.streams.here().synchronize()
        return float(self.host)

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, function, method, *inputs, out=None, **options):
        assert method == "__call__", f"{function.__name__}.{method} is not known to work in CuPy"
        assert not options, f"{function.__name__}: {options} are not known to work in CuPy"
        here = {array.block.device for array in (*inputs, *(out or ())) if isinstance(array, DeviceArray)}
        assert here == {self.streams.here().device}, "memory of another GPU"
        plain = [_operand(array, function.__name__) for array in inputs]
        if out is None:
            return self._work(lambda: function(*plain))
        (target,) = out
        self.streams.here().synchronize()
        function(*plain, out=target.host)
        return target

    def __array_function__(self, function, types, args, kwargs):
        if function not in TAKEN:
            raise TypeError(f"{function.__name__} is not known to work in CuPy")
        plain = [_operand(array, function.__name__) for array in args]
        return self._work(lambda: function(*plain, **kwargs))


def _tuple(key):
    return key if isinstance(key, tuple) else (key,)


def _check_key(key):
    """Raise `TypeError` for all indices but numbers, slices and new axes, which make views."""
    if not all(one is None or one is ... or isinstance(one, (slice, int, np.integer)) for one in _tuple(key)):
        raise TypeError(f"an array of the GPU is indexed by numbers and slices, got {key!r}")


def _operand(value, who):
    """Return what NumPy may compute with: an array of the "GPU", a number or a text; others do not mix with it."""
    if isinstance(value, DeviceArray):
        return value.host
    if isinstance(value, np.ndarray) or not isinstance(value, (bool, int, float, str, np.generic)):
        raise TypeError(f"{who}: an array of the process meets one of the GPU")
    return value


class _Kernel:
    def __init__(self, function, name, seed, memory):
        self.function, self.name, self.seed, self.memory = function, name, seed, memory
        function.restype = ctypes.c_char_p

    def __call__(self, grid, block, arguments, *, shared_mem=0):
        assert all(type(part) is tuple for part in (grid, block, arguments)), "CuPy takes tuples"
        assert block[0] in range(32, 1025, 32), "blocks are whole warps, at most 1024 threads"
        assert grid[0] in range(1, 2**31), "a grid has at most 2^31 - 1 blocks a row"
        assert grid[1] in range(1, 2**16), "and at most 65,535 rows"
        assert shared_mem <= SHARED_LIMIT, "more shared memory than a block has"
        pointers = (ctypes.c_void_p * len(arguments))()
        kept: list = []
        for i, argument in enumerate(arguments):
            if isinstance(argument, DeviceArray):
                assert argument.block.device == self.memory.streams.here().device, "memory of another GPU"
                kept.append(ctypes.c_void_p(argument.data.ptr))
            else:
                assert isinstance(argument, np.generic), f"{self.name}: argument {i} is a {type(argument).__name__}"
                kept.append(ctypes.create_string_buffer(argument.tobytes(), argument.nbytes))
            pointers[i] = ctypes.addressof(kept[i])
        self.memory.streams.here().do(lambda: self._run(grid, block, pointers, (arguments, kept)))

    def _run(self, grid, block, pointers, alive):
        """Run the kernel; `alive` is what `pointers` point into."""
        with ONE_AT_A_TIME:
            failure = self.function((ctypes.c_uint * 2)(*grid), block[0], pointers, self.seed)
        if failure:
            raise RuntimeError(f"{self.name}: {failure.decode()}")
        self.memory.check(self.name)


class RawModule:
    """The kernels of a source, compiled by g++; a `seed` above 0 shuffles threads and turns the order of blocks."""

    def __init__(self, memory, code, options, seed=0, flags=()):
        assert (type(code), type(options)) == (str, tuple), "CuPy takes a text and a tuple"
        defines = [option for option in options if option.startswith("-D")]
        names = re.findall(r'extern "C" __global__ void (\w+)\(', code)
        exports = "\n".join(f"SHIM_EXPORT({name})" for name in names)
        source = f'#include "{HEADER.name}"\n#line 1 "{SOURCE.name}"\n{code}\n{exports}\n'
        command = [COMPILER, *FLAGS, *defines, *flags, "-I", str(HEADER.parent)]
        self.library, self.seed, self.memory = ctypes.CDLL(str(_compiled(source, command))), seed, memory

    def get_function(self, name):
        return _Kernel(getattr(self.library, f"shim_{name}"), name, self.seed, self.memory)


def _compiled(source, command):
    """Return the library of a source: compiled once, then found by the hash of all that it depends on."""
    stamp = hashlib.sha256("\0".join([source, HEADER.read_text(), *command]).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"xmlsgd-shim-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{stamp}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            written = Path(work) / "kernels.cpp"
            written.write_text(source)
            subprocess.run([*command, str(written), "-o", f"{work}/kernels.so"], check=True)
            Path(work, "kernels.so").replace(library)
    return library


class _Cublas:
    """`gemmEx` as cuBLAS defines it: matrices by address, counted by columns."""

    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT = 68, -1

    def __init__(self, memory):
        self.memory, self.streams = memory, memory.streams
        self.handles: set[int] = set()

    def create(self):
        self.handles.add(len(self.handles) + 1)
        return len(self.handles)

    def destroy(self, handle):
        self.handles.remove(handle)

    def gemmEx(
        self, handle, ta, tb, m, n, k, alpha, A, a_type, lda, B, b_type, ldb, beta, C, c_type, ldc, compute, algo
    ):
        if self.streams.here().is_capturing():
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
        factors = [float(_memory(at, np.float32, 1)[0]) for at in (alpha, beta)]
        assert (compute, algo) == (68, -1)
        self.multiply(handle, ta, tb, m, n, k, lambda: factors, A, a_type, lda, B, b_type, ldb, C, c_type, ldc)

    def multiply(self, handle, ta, tb, m, n, k, factors, A, a_type, lda, B, b_type, ldb, C, c_type, ldc):
        """Multiply on the current stream, by the factors at that time."""
        assert handle in self.handles
        assert all(isinstance(one, int) for one in (ta, tb, m, n, k, A, a_type, lda, B, b_type, ldb, C, c_type, ldc))
        assert c_type == a_type or c_type == 0, "cuBLAS has no such product"

        alive = [self.memory.block_of(address) for address in (A, B, C)]  # CuPy gives it to others in stream order
        assert None not in alive, "a matrix is not in the memory of the GPU"

        def multiply(alive=alive):
            factor, keep = factors()
            left = _matrix(A, a_type, (k, m) if ta else (m, k), lda)
            right = _matrix(B, b_type, (n, k) if tb else (k, n), ldb)
            narrow = c_type == CUDA_R_16BF
            out = _columns(C, np.uint16 if narrow else np.float32, (m, n), ldc)
            product = np.float32(factor) * ((left.T if ta else left) @ (right.T if tb else right))
            if narrow:
                assert keep == 0
                bits = product.view(np.uint32)
                product = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
            out[:] = product + np.float32(keep) * out if keep else product  # with beta 0, C is not read

        self.streams.here().do(multiply)


class CublasLibrary:
    """The library behind cuBLAS as `ctypes` sees it: factors in the "GPU's" memory, read when the product is made."""

    def __init__(self, cupy):
        self.cublas, self.memory, self.state = cupy.cublas, cupy.memory, {}

    def cublasSetStream_v2(self, handle, stream):
        self.state["stream"] = stream.value
        return 0

    def cublasSetWorkspace_v2(self, handle, address, size):
        assert "stream" in self.state, "a stream that is set later takes the workspace away"
        self.state["workspace"] = self.memory.holds(address.value, size.value)
        return 0

    def cublasSetPointerMode_v2(self, handle, mode):
        self.state["pointers"] = mode.value
        return 0

    def cublasGemmEx(
        self, handle, ta, tb, m, n, k, alpha, A, a_type, lda, B, b_type, ldb, beta, C, c_type, ldc, compute, algo
    ):
        pointers, numbers = (handle, alpha, A, B, beta, C), (ta, tb, m, n, k, a_type, lda, b_type, ldb, c_type, ldc)
        assert all(type(one) is ctypes.c_void_p for one in pointers)
        assert all(type(one) is ctypes.c_int for one in (*numbers, compute, algo))
        assert (self.state["workspace"], self.state["pointers"], compute.value, algo.value) == (True, 1, 68, -1)
        assert self.state["stream"] in (self.memory.streams.here().ptr, None)
        assert self.memory.holds(alpha.value, 4)
        assert self.memory.holds(beta.value, 4)
        factors = partial(self._factors, alpha.value, beta.value)
        ta, tb, m, n, k, a_type, lda, b_type, ldb, c_type, ldc = (one.value for one in numbers)
        self.cublas.multiply(
            handle.value, ta, tb, m, n, k, factors, A.value, a_type, lda, B.value, b_type, ldb, C.value, c_type, ldc,
        )  # fmt: skip
        return 0

    def _factors(self, *addresses):
        return [float(_memory(address, np.float32, 1)[0]) for address in addresses]


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


class _Device:
    """A GPU, entered by who works on it."""

    def __init__(self, index, compute_capability):
        self.id, self.compute_capability = index, compute_capability

    def __enter__(self):
        ENTERED.devices.append(self.id)
        return self

    def __exit__(self, *error):
        ENTERED.devices.pop()


def fake_cupy(seed=0, capability="90", flags=(), free=1 << 30, edit=str, capacity=1 << 40, late=()):
    """Return what the device uses of CuPy; `memory` holds its arrays, `edit` changes the source of kernels."""
    streams = Streams(late)
    memory = Memory(streams, capacity)
    streams.memory = memory
    cupy = SimpleNamespace(memory=memory, empty=memory.empty, __spec__=ModuleSpec("cupy", None))
    cupy.cublas = _Cublas(memory)

    def copy(target, source, size, kind, stream):
        assert memory.holds(target, size) == (kind in (1, 3)), "cudaMemcpyKind does not fit the target"
        assert memory.holds(source, size) == (kind in (2, 3)), "cudaMemcpyKind does not fit the source"
        alive = memory.block_of(target), memory.block_of(source)
        streams.all[stream].do(lambda alive=alive: ctypes.memmove(target, source, size))

    cupy.RawModule = lambda code, options: RawModule(memory, edit(code), options, seed, flags)
    cupy.cuda = SimpleNamespace(
        Device=lambda index: _Device(index, capability),
        Stream=streams.make,
        Event=Event,
        alloc_pinned_memory=lambda size: bytearray(b"\xff" * (-(-size // 512) * 512)),  # rounded up, not cleared
        is_available=lambda: True,
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        nccl=FakeNccl(memory),
        runtime=SimpleNamespace(
            getDeviceCount=lambda: 2,
            memGetInfo=lambda: (min(free, memory.capacity - memory.live), 2 * free),
            memcpyAsync=copy,
        ),
    )
    cupy.get_default_memory_pool = lambda: SimpleNamespace(
        free_bytes=lambda: 0, total_bytes=lambda: memory.peak, free_all_blocks=lambda: None
    )  # fmt: skip
    return cupy


def pretend_gpus(monkeypatch, **options):
    """Let `import cupy` find `fake_cupy(**options)`, with two GPUs; return it."""
    cupy = fake_cupy(**options)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for name in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(cublas=cupy.cublas))
    return cupy


def shim_device(precision="auto", chunk_bytes=CHUNK_BYTES, once_bytes=0, stochastic=False, graphs=False, **options):
    """Return the CUDA device on a "GPU" of `fake_cupy(**options)`."""
    cupy = fake_cupy(**options)
    return device_of(cupy, 0, precision, chunk_bytes, once_bytes, stochastic, graphs)


def device_of(
    cupy, index, precision="auto", chunk_bytes=CHUNK_BYTES, once_bytes=0, stochastic=False, graphs=False
):  # fmt: skip
    """Return the CUDA device on GPU `index` of a `fake_cupy`."""
    runtime = Runtime(cupy, cupy.cublas, index, precision, stochastic)
    vars(runtime)["blas_library"] = lambda: CublasLibrary(cupy)
    return CUDA(
        precision=precision, runtime=runtime, chunk_bytes=chunk_bytes, once_bytes=once_bytes, graphs=graphs,
    )  # fmt: skip


def _started(operation):
    """Return an operation that starts its device."""

    @functools.wraps(operation)
    def inside(self, *arguments):
        with self.start():
            return operation(self, *arguments)

    return inside


class OnHost:
    """A device whose operations take and change arrays of the process: they travel there and back."""

    def __init__(self, device):
        self.device, self.bfloat16, self.start, self.warm_up = device, device.bfloat16, device.start, device.warm_up

    def _there(self, *arrays):
        return [self.device.place(np.ascontiguousarray(array)) for array in arrays]

    def _layer(self, layer):
        return type(layer)(*self._there(*layer))

    def _back(self, placed, arrays):
        for there, here in zip(placed, arrays, strict=True):
            if here.flags.writeable:
                here[...] = self.device.fetch(there)

    def place(self, flat):
        return flat

    def replay(self, *step):
        return None

    @_started
    def take(self, layer, active):
        there = self._layer(layer)
        parts = zip(self.device.take(there, active), there, layer, strict=True)
        return type(layer)(*(here if new is old else self.device.fetch(new) for new, old, here in parts))

    @_started
    def put(self, part, layer, active):
        there = self._layer(layer)
        both = zip(part, there, layer, strict=True)
        parts = [old if new is before else self.device.place(new) for new, old, before in both]
        self.device.put(type(layer)(*parts), there, active)
        self._back(there, layer)

    @_started
    def through_relu(self, dA, A, factor):
        return self.device.fetch(self.device.through_relu(*self._there(dA, A), factor))

    @_started
    def drop(self, A, dropout):
        (there,) = self._there(A)
        self.device.drop(there, dropout)
        self._back([there], [A])

    @_started
    def input_forward(self, X, rows, layer, dropout):
        return self.device.fetch(self.device.input_forward(X, rows, self._layer(layer), dropout))

    @_started
    def dense_forward(self, A, layer):
        return self.device.fetch(self.device.dense_forward(*self._there(A), self._layer(layer)))

    @_started
    def output_step(self, A, Y, rows, scale, layer, loss, update, rounding=EXACT):
        there = self._layer(layer)
        value, dA = self.device.output_step(*self._there(A), Y, rows, scale, there, loss, update, rounding)
        self._back(there, layer)
        return float(value), self.device.fetch(dA)

    @_started
    def dense_step(self, A, dZ, layer, update):
        there = self._layer(layer)
        dA = self.device.dense_step(*self._there(A, dZ), there, update)
        self._back(there, layer)
        return self.device.fetch(dA)

    @_started
    def input_step(self, X, rows, dZ, layer, update, dropout):
        there = self._layer(layer)
        self.device.input_step(X, rows, *self._there(dZ), there, update, dropout)
        self._back(there, layer)

    @_started
    def top_k(self, A, layer, k):
        return self.device.top_k(*self._there(A), self._layer(layer), k)
