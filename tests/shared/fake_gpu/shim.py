"""An emulated GPU: CuPy's names over NumPy, the CUDA kernels compiled by g++ (`cuda_shim.h`), cuBLAS's product.

What the device's host code asks of CuPy runs unchanged. New memory is filled with NaN and has guards on both sides,
which every launch looks at; arrays of the "GPU" do not mix with those of the process.
"""

from __future__ import annotations

import ctypes
import sys
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

from xmlsgd.devices.cuda import CUDA
from xmlsgd.devices.cuda.runtime import Runtime

from .blas import Cublas
from .driver import Driver
from .kernels import RawModule
from .memory import Memory, OutOfMemoryError
from .streams import ENTERED, Event, Streams

MULTIPROCESSORS = 4  # few, so that a block has several tiles of labels
OF_DEVICE = ("chunk_bytes",)  # options of `CUDA` that the "GPU" has none of


class CUDARuntimeError(RuntimeError):
    """What CuPy raises where the CUDA runtime fails."""


class _Device:
    """A GPU, entered by who works on it."""

    def __init__(self, index, compute_capability):
        self.id, self.compute_capability = index, compute_capability

    def __enter__(self):
        ENTERED.devices.append(self.id)
        return self

    def __exit__(self, *error):
        ENTERED.devices.pop()


def fake_cupy(
    seed=0, capability="90", flags=(), free=1 << 30, edit=str, capacity=1 << 40, late=(), nvrtc=(13, 0)
):  # fmt: skip
    """Return what the device uses of CuPy; `memory` holds its arrays, `edit` changes the source of kernels."""
    streams = Streams(late)
    memory = Memory(streams, capacity)
    streams.memory = memory
    cupy = SimpleNamespace(memory=memory, empty=memory.empty, __spec__=ModuleSpec("cupy", None))
    cupy.cublas, cupy.driver = Cublas(memory), Driver(memory)

    def copy(target, source, size, kind, stream):
        assert memory.holds(target, size) == (kind in (1, 3)), "cudaMemcpyKind does not fit the target"
        assert memory.holds(source, size) == (kind in (2, 3)), "cudaMemcpyKind does not fit the source"
        alive = memory.block_of(target), memory.block_of(source)
        streams.all[stream].do(lambda alive=alive: ctypes.memmove(target, source, size))

    speed = "-O1" if edit is str else "-Og"  # with a planted bug, kernels run once: they are compiled in two thirds
    cupy.RawModule = lambda code, options: RawModule(memory, edit(code), options, seed, (speed, *flags))
    cupy.cuda = SimpleNamespace(
        Device=lambda index: _Device(index, capability),
        Stream=streams.make,
        Event=Event,
        get_current_stream=streams.here,
        get_elapsed_time=lambda first, last: 1e-3,  # milliseconds
        alloc_pinned_memory=lambda size: bytearray(b"\xff" * (-(-size // 512) * 512)),  # rounded up, not cleared
        is_available=lambda: True,
        nvrtc=SimpleNamespace(getVersion=lambda: nvrtc),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        runtime=SimpleNamespace(
            getDeviceCount=lambda: 2,
            memGetInfo=lambda: (min(free, memory.capacity - memory.live), 2 * free),
            memcpyAsync=copy,
            CUDARuntimeError=CUDARuntimeError,
            deviceGetAttribute=lambda attribute, index: {16: MULTIPROCESSORS}[attribute],
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
    monkeypatch.setattr("xmlsgd.devices.cuda.tensor_map.library", lambda: cupy.driver)
    for name in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(cublas=cupy.cublas))
    return cupy


def shim_device(precision="auto", **options):
    """Return the CUDA device on a "GPU" of `fake_cupy(**options)`; options of `CUDA` go to it."""
    of_device = {name: options.pop(name) for name in OF_DEVICE if name in options}
    return device_of(fake_cupy(**options), 0, precision, **of_device)


def device_of(cupy, index, precision="auto", **options):
    """Return the CUDA device on GPU `index` of a `fake_cupy`."""
    return CUDA(precision=precision, runtime=Runtime(cupy, cupy.cublas, index, precision, cupy.driver), **options)
