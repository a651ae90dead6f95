"""One GPU through CuPy: its stream, its compiled kernels, matrix products by cuBLAS, buffers and copies.

`cupy` and `cublas` are arguments, not imports: a machine without a GPU lacks them, and tests pass their own.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError, MemoryEstimateError
from .kernels import KernelParameter, defined, hopper_source, kernel_parameters, kernel_source
from .staging import GROWTH, HOST_TO_DEVICE, StagingRing

(TILE,) = defined("common", "TILE")  # columns of a warp
WARP = 32
THREADS = 256  # of a block, unless a kernel says otherwise; eight warps
SHARED_LIMIT = 48 << 10  # bytes of shared memory that every GPU gives a block
BFLOAT16_CAPABILITY = 80  # compute capability of Ampere, the first with bfloat16 products
HOPPER_CAPABILITY = 90  # alone has the instructions of `hopper.cu`
HOPPER_NVRTC = (12, 9)  # takes the architecture that these need besides the one that CuPy names; 12.4 does not
DEVICE_TO_HOST = 2  # cudaMemcpyKind
CUDA_R_32F, CUDA_R_16BF = 0, 14  # cudaDataType


class Scalars(NamedTuple):
    """GEMM's alpha and beta, float32 (2,): cuBLAS reads those in host, kernels of our own those in device memory."""

    host: np.ndarray
    device: Any


class Runtime:
    """A GPU, one stream on it and what runs there.

    `precision` is "float32", "bfloat16" (operands of the output layer's products) or "auto": bfloat16 where the GPU
    multiplies it. `driver` has the functions of the driver that CuPy lacks, by default those of its library. One Python
    thread at a time is inside `start()`, and everything else is called there. Raises `DataError` for bfloat16 on a GPU
    that lacks it, and where the kernels do not compile.
    """

    def __init__(self, cupy: Any, cublas: Any, index: int, precision: str, driver: Any = None) -> None:
        self.cupy, self.cublas, self.index, self.driver = cupy, cublas, index, driver
        self._device, self._lock = cupy.cuda.Device(index), threading.RLock()
        capability = int(self._device.compute_capability)
        native = capability >= BFLOAT16_CAPABILITY
        if precision == "bfloat16" and not native:
            raise DataError(
                f"precision: 'bfloat16' takes a GPU of compute capability {BFLOAT16_CAPABILITY / 10:g} or newer, "
                f"device 'cuda:{index}' has {capability / 10:g}; use 'float32'"
            )
        self.bfloat16 = native if precision == "auto" else precision == "bfloat16"
        self.operand = np.dtype(np.uint16 if self.bfloat16 else np.float32)
        hopper = self.bfloat16 and capability == HOPPER_CAPABILITY
        self.hopper = hopper and cupy.cuda.nvrtc.getVersion() >= HOPPER_NVRTC
        self.parameters: dict[str, list[KernelParameter]] = {}
        self._scalars: dict[tuple[float, float], Scalars] = {}
        self._views: dict[str, tuple[tuple[int, ...], Any, Any]] = {}  # shape, dtype and the last array of a buffer
        self._numbers = np.empty(2, np.float32)  # alpha and beta, which cuBLAS reads when it is called
        self._alpha, self._beta = (self._numbers[i:].ctypes.data for i in range(2))
        self._method = cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT  # of all products
        self._buffers: dict[str, Any] = {}
        self._most_shared: dict[str, int] = {}  # bytes, of kernels that may have more than others
        self._staging: dict[str, StagingRing] = {}
        self._ahead_events: dict[str, _AheadEvents] = {}
        with self._device:
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.copies = cupy.cuda.Stream(non_blocking=True)  # host to device, while kernels run
            self._ahead = cupy.cuda.Stream(non_blocking=True, priority=-1)  # of `ahead`; others have a lower one, 0
            self._handle = self.new_handle()
            self._kernels = self._compile(kernel_source(self.bfloat16))
            if self.hopper:
                self._kernels |= self._compile(hopper_source(), "-arch=sm_90a")

    def _compile(self, source: str, *options: str) -> dict[str, Any]:
        """Return the kernels of a source by name; CuPy compiles at the first request and caches the result."""
        parameters = kernel_parameters(source, self.operand)
        options = ("--std=c++17", *["-DBFLOAT16"] * self.bfloat16, *options)
        module = self.cupy.RawModule(code=source, options=options)
        self.parameters |= parameters
        try:
            return {name: module.get_function(name) for name in parameters}
        except Exception as error:  # NVRTC's, or of a driver that is too old for what it compiles
            reason = str(error).strip().partition("\n")[0]
            raise DataError(
                f"device 'cuda:{self.index}': its kernels do not compile ({reason}); use 'cpu', update the driver, or "
                "install the extra of xmlsgd, cuda12 or cuda13, that suits the GPU"
            ) from error

    @contextlib.contextmanager
    def start(self) -> Iterator[None]:
        """Make the GPU and the stream those of the calling thread; a second thread waits."""
        with self._lock, self.current():
            yield

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the GPU and the stream those of the calling thread, which copies whole arrays and uses no buffer."""
        with self._device, self.stream:
            try:
                yield
            except self.cupy.cuda.memory.OutOfMemoryError as error:
                reason, free = str(error).partition("\n")[0], free_bytes(self.cupy) / 1e9
                raise MemoryEstimateError(
                    f"device 'cuda:{self.index}': {reason}; {free:.2f} GB are free; a smaller batch_size, fewer "
                    "hidden units, optimizer='sgd' or 'row_rmsprop', or fewer learners on it take less"
                ) from error

    @contextlib.contextmanager
    def ahead(self, name: str) -> Iterator[None]:
        """Launch what is called inside on a side stream, so that it overlaps kernels that wait on the main one.

        It waits for all uploads, and for the readers of what it wrote last. What it writes, in buffers asked for
        inside, is for kernels between `wait_for` and `has_read` of the same name.
        """
        if name not in self._ahead_events:
            self._ahead_events[name] = _AheadEvents(*(self.cupy.cuda.Event(disable_timing=True) for _ in range(3)))
        uploaded, written, read = self._ahead_events[name]
        uploaded.record(self.copies)
        self._ahead.wait_event(uploaded)
        self._ahead.wait_event(read)
        with self._ahead:
            yield
        written.record(self._ahead)

    def wait_for(self, name: str) -> None:
        """Let kernels launched from now on wait for what runs `ahead`."""
        self.stream.wait_event(self._ahead_events[name].written)

    def has_read(self, name: str) -> None:
        """Let what runs `ahead` next write over what kernels launched so far read."""
        self._ahead_events[name].read.record(self.stream)

    def launch(
        self, name: str, blocks: int | tuple[int, int], *arguments: Any, threads: int = THREADS, shared: int = 0
    ) -> None:
        """Run a kernel on `blocks` blocks with `shared` bytes of dynamic shared memory; none for no blocks."""
        grid = blocks if isinstance(blocks, tuple) else (blocks, 1)
        if min(grid) == 0:
            return
        if shared > self._most_shared.get(name, SHARED_LIMIT):
            raise DataError(
                f"device 'cuda:{self.index}': a layer must have at most {SHARED_LIMIT // 4} hidden units, got "
                f"{shared // 4}; train it on 'cpu'"
            )
        converted = [p.convert(a) for p, a in zip(self.parameters[name], arguments, strict=True)]
        self._kernels[name](grid, (threads,), tuple(converted), shared_mem=shared)

    def allow_shared(self, name: str, n_bytes: int) -> None:
        """Let a kernel have up to so many bytes of dynamic shared memory."""
        with self._device:
            self._kernels[name].max_dynamic_shared_size_bytes = n_bytes
        self._most_shared[name] = n_bytes

    def gemm(
        self, A: Any, B: Any, C: Any, beta: float = 0.0, ta: bool = False, tb: bool = False,
        scalars: Scalars | None = None,
    ) -> None:  # fmt: skip
        """Write C = alpha op(A) op(B) + beta C, alpha 1 unless `scalars` name both; `ta`, `tb`: whether op transposes.

        Matrices are row-major, float32 or bfloat16 (as uint16); sums are float32, never TF32. cuBLAS counts by columns
        and so computes the transposed product, with the operands exchanged.
        """
        (m, k), n = A.shape[::-1] if ta else A.shape, B.shape[0] if tb else B.shape[1]
        sizes = int(tb), int(ta), n, m, k
        first, second, out = map(_matrix, (B, A, C))
        self._numbers[:] = (1.0, beta) if scalars is None else scalars.host
        self.cublas.gemmEx(self._handle, *sizes, self._alpha, *first, *second, self._beta, *out, *self._method)

    def gemm_parts(self, A: Any, B: Any, size: int, C: Any, beta: float = 0.0) -> None:
        """Write C[p] = A[:, p size : (p + 1) size] B[p size : (p + 1) size] + beta C[p], for each part p of C.

        The last part may be shorter. See `gemm` for the matrices.
        """
        (m, k), n, full = A.shape, B.shape[1], A.shape[1] // size
        if full:
            first, second, out = map(_matrix, (B, A, C[0]))
            self._numbers[:] = 1.0, beta
            self.cublas.gemmStridedBatchedEx(
                self._handle, 0, 0, n, m, size, self._alpha, *first, size * first[2], *second, size, self._beta, *out,
                m * n, full, *self._method,
            )  # fmt: skip
        if k > full * size:
            self.gemm(A[:, full * size :], B[full * size :], C[full], beta=beta)

    def gemm_rows(self, A: Any, B: Any, size: int, C: Any, scalars: Scalars) -> None:
        """Write C = alpha A^T B + beta C, `size` rows of C at a time, so that what they read of A stays in the cache.

        `scalars` are alpha and beta; see `gemm` for the matrices.
        """
        (k, m), n, full = A.shape, B.shape[1], A.shape[1] // size
        if full:
            first, second, out = map(_matrix, (B, A, C))
            self._numbers[:] = scalars.host
            self.cublas.gemmStridedBatchedEx(
                self._handle, 0, 1, n, size, k, self._alpha, *first, 0, *second, size, self._beta, *out, size * out[2],
                full, *self._method,
            )  # fmt: skip
        if m > full * size:
            self.gemm(A[:, full * size :], B, C[full * size :], ta=True, scalars=scalars)

    def sort(self, keys: Any) -> None:
        """Sort keys in place, where there are any."""
        if len(keys):
            keys.sort()

    def new_handle(self) -> int:
        """Return a handle of cuBLAS for a stream, freed with this object; equal bits need a workspace per stream."""
        handle: int = self.cublas.create()
        weakref.finalize(self, self.cublas.destroy, handle).atexit = False  # some 30 MB of the GPU
        return handle

    def scalars(self, alpha: float, beta: float) -> Scalars:
        """Return two numbers that stay in the GPU's memory."""
        if (alpha, beta) not in self._scalars:
            host = np.array([alpha, beta], np.float32)
            self._scalars[alpha, beta] = Scalars(host, self.to_device(host))
        return self._scalars[alpha, beta]

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Return an array from CuPy's pool, which asks the driver for memory only where it has none of that size."""
        return self.cupy.empty(shape, dtype)

    def pinned(self, size: int, dtype: Any) -> np.ndarray:
        """Return an array (size,) in pinned memory of the host."""
        n_bytes = size * np.dtype(dtype).itemsize
        try:
            return np.frombuffer(self.cupy.cuda.alloc_pinned_memory(n_bytes), dtype, size)
        except self.cupy.cuda.runtime.CUDARuntimeError as error:
            raise MemoryEstimateError(
                f"device 'cuda:{self.index}': the host has no {n_bytes:,} bytes of pinned memory ({error}); a smaller "
                "batch_size takes less"
            ) from error

    def buffer(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Return an array in the memory of the buffer `name`, which later calls use again."""
        last_shape, last_dtype, view = self._views.get(name, (None, None, None))
        if shape != last_shape or dtype != last_dtype:
            view = self._new_view(name, shape, np.dtype(dtype))
            self._views[name] = shape, dtype, view
        return view

    def _new_view(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        size = math.prod(shape)
        known = self._buffers.get(name)
        if known is None or known.size < size or known.dtype != dtype:
            growing = known is not None and 2 * known.size > size
            self._views.pop(name, None)  # the smaller one goes first: never both at once
            self._buffers[name] = known = None
            self._buffers[name] = known = self.cupy.empty((max(int(GROWTH * size) if growing else size, 1),), dtype)
        return known[:size].reshape(shape)

    def upload(self, name: str, *arrays: np.ndarray) -> Any:
        """Return the arrays, of one dtype, one after another on the GPU, valid until the next call with this name.

        The copy goes through pinned memory; the host does not wait for it.
        """
        if name not in self._staging:
            self._staging[name] = StagingRing(self.cupy)
        return self._staging[name].upload(self, arrays)

    def to_device(self, host: np.ndarray) -> Any:
        """Return a copy on the GPU."""
        placed = self.cupy.empty(host.shape, host.dtype)
        self.copy_to_device(placed, host)
        return placed

    def copy_to_device(self, placed: Any, host: np.ndarray) -> None:
        """Copy `host` to the GPU and wait for it."""
        host = np.ascontiguousarray(host)  # a copy of it must live until the GPU has read it
        self.copy(placed.data.ptr, host.ctypes.data, host.nbytes, HOST_TO_DEVICE, self.stream)
        self.stream.synchronize()

    def to_host(self, placed: Any, host: np.ndarray | None = None) -> np.ndarray:
        """Copy an array from the GPU to `host`, contiguous, a new one by default, and return it."""
        host = np.empty(placed.shape, placed.dtype) if host is None else host
        self.copy(host.ctypes.data, placed.data.ptr, host.nbytes, DEVICE_TO_HOST, self.stream)
        self.stream.synchronize()
        return host

    def read_later(self, value: Any) -> Callable[[], float]:
        """Begin to copy a number from the GPU; return a function that waits for that and for nothing after it."""
        pinned = self.pinned(1, value.dtype)
        self.copy(pinned.ctypes.data, value.data.ptr, value.nbytes, DEVICE_TO_HOST, self.stream)
        copied = self.cupy.cuda.Event(disable_timing=True)
        copied.record(self.stream)

        def read(value: Any = value) -> float:  # the number stays where it is until it is copied
            copied.synchronize()
            return float(pinned[0])

        return read

    def copy(self, target: int, source: int, n_bytes: int, kind: int, stream: Any) -> None:
        """Copy bytes from address to address, in the order of a stream."""
        if n_bytes:
            self.cupy.cuda.runtime.memcpyAsync(target, source, n_bytes, kind, stream.ptr)


class _AheadEvents(NamedTuple):
    """Events of what runs `ahead`: uploads are complete, it has been written, kernels have read it."""

    uploaded: Any
    written: Any
    read: Any


def free_bytes(cupy: Any) -> int:
    """Return the memory of the current GPU that is free, or that CuPy keeps for what it will need next."""
    return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())


def blocks_of(n: int, threads: int = THREADS) -> int:
    """Return the blocks for one thread an element."""
    return -(-n // threads)


def _matrix(array: Any) -> tuple[int, int, int]:
    """Return the address and the type of a matrix, and the elements from one row to the next, at least its width."""
    kind = CUDA_R_16BF if array.dtype == np.uint16 else CUDA_R_32F
    return array.data.ptr, kind, int(max(array.strides[0] // array.dtype.itemsize, array.shape[1], 1))
