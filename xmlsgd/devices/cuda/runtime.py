"""One GPU through CuPy: its stream, its compiled kernels, matrix products by cuBLAS, buffers and copies.

`cupy` and `cublas` are arguments, not imports: a machine without a GPU lacks them, and tests pass their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import re
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError, MemoryEstimateError
from ..base import GOLDEN
from .sender import GROWTH, HOST_TO_DEVICE, Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .graph import Fixed

SOURCE, PRODUCTS = (Path(__file__).with_name(name) for name in ("kernels.cu", "products.cu"))
WARP = 32
THREADS = 256  # of a block, unless a kernel says otherwise; eight warps
SHARED_LIMIT = 48 << 10  # bytes of shared memory that every GPU gives a block
BFLOAT16_CAPABILITY = 80  # compute capability of Ampere, the first with bfloat16 products
DEVICE_TO_HOST = 2  # cudaMemcpyKind
CUDA_R_32F, CUDA_R_16BF = 0, 14  # cudaDataType

_KERNEL = re.compile(r'extern "C" __global__ void (?:SEVERAL_BLOCKS )?(\w+)\(([^)]*)\)')
_TYPES = {
    "int": np.dtype(np.int32), "i64": np.dtype(np.int64), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "float": np.dtype(np.float32), "double": np.dtype(np.float64),
}  # fmt: skip


class Parameter:
    """A kernel's parameter: a number, or a pointer to elements, of a dtype.

    passed : returns an argument as the kernel reads it; `TypeError` for an array of another dtype. Whether an array has
    gaps is not asked, which takes CuPy as long as all the rest; tests on the CPU do.
    """

    def __init__(self, declaration: str, operand: np.dtype) -> None:
        kind = declaration.replace("const ", "").split()[0]
        self.dtype = operand if kind == "operand" else _TYPES[kind]
        self.is_pointer, self.name = "*" in declaration, re.split(r"[ *]", declaration)[-1]
        self.passed: Callable[[Any], Any] = self._array if self.is_pointer else self.dtype.type

    def _array(self, argument: Any) -> Any:
        if argument.dtype != self.dtype:
            raise TypeError(f"{self.name} must be {self.dtype}, got {argument.dtype}")
        return argument


def kernel_parameters(source: str, operand: np.dtype) -> dict[str, list[Parameter]]:
    """Return the parameters of every kernel of a source by name."""
    return {
        name: [Parameter(" ".join(one.split()), operand) for one in parameters.split(",")]
        for name, parameters in _KERNEL.findall(source)
    }


def defined(file: Path, *names: str) -> list[int]:
    """Return the whole numbers that a source of kernels defines by these names."""
    found = dict(re.findall(r"^#define (\w+) +(\d+)\b", file.read_text(), re.MULTILINE))
    return [int(found[name]) for name in names]


def kernel_source(products: bool) -> str:
    """Return the source of the kernels; with `products` those of bfloat16 operands on a GPU that multiplies them."""
    return SOURCE.read_text() + (PRODUCTS.read_text() if products else "")


class Runtime:
    """A GPU, one stream on it and what runs there.

    precision : "float32", "bfloat16" (operands of the output layer's products) or "auto", which is bfloat16 where the
    GPU multiplies it. stochastic : whether weights are rounded to bfloat16 at random, by draws that begin anew with the
    runtime, not to nearest. One Python thread at a time is inside `start()`, and everything else is called there.
    """

    def __init__(self, cupy: Any, cublas: Any, index: int, precision: str, stochastic: bool = False) -> None:
        self.cupy, self.cublas, self.index = cupy, cublas, index
        self.stochastic, self._drawn = stochastic, 0
        self._device, self._lock = cupy.cuda.Device(index), threading.RLock()
        native = int(self._device.compute_capability) >= BFLOAT16_CAPABILITY
        self.bfloat16 = native if precision == "auto" else precision == "bfloat16"
        self.operand = np.dtype(np.uint16 if self.bfloat16 else np.float32)
        self.has_products = native and self.bfloat16  # kernels of products of our own
        source = kernel_source(self.has_products)
        self.parameters = kernel_parameters(source, self.operand)
        self.fixed: Fixed | None = None  # the places of a step that is, or becomes, a graph
        self._factors: dict[tuple[float, float], Any] = {}
        self._numbers = np.empty(2, np.float32)  # alpha and beta, which cuBLAS reads when it is called
        self._alpha, self._beta = (self._numbers[i:].ctypes.data for i in range(2))
        self._buffers: dict[str, Any] = {}
        self._senders: dict[str, Sender] = {}
        with self._device:
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.copies = cupy.cuda.Stream(non_blocking=True)  # what goes to the GPU while kernels run
            self._handle = self.new_handle()
            options = ("--std=c++17", *(("-DBFLOAT16",) if self.bfloat16 else ()))
            module = cupy.RawModule(code=source, options=options)
            self._kernels = {name: module.get_function(name) for name in self.parameters}

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
                reason, free = str(error).partition("\n")[0], self.free_bytes() / 1e9
                raise MemoryEstimateError(
                    f"device 'cuda:{self.index}': {reason}; {free:.2f} GB are free; a smaller batch_size, fewer "
                    "hidden units, optimizer='sgd' or 'row_adagrad', or fewer learners on it take less"
                ) from error

    def free_bytes(self) -> int:
        """Return the free memory of the GPU."""
        return free_bytes(self.cupy)

    def launch(
        self, name: str, blocks: int | tuple[int, int], *arguments: Any, threads: int = THREADS, shared: int = 0
    ) -> None:
        """Run a kernel on `blocks` blocks with `shared` bytes of dynamic shared memory; none for no blocks."""
        grid = blocks if isinstance(blocks, tuple) else (blocks, 1)
        if min(grid) == 0:
            return
        if shared > SHARED_LIMIT:
            raise DataError(
                f"device 'cuda:{self.index}': a layer must have at most {SHARED_LIMIT // 4} hidden units, got "
                f"{shared // 4}; train it on 'cpu'"
            )
        passed = [p.passed(a) for p, a in zip(self.parameters[name], arguments, strict=True)]
        self._kernels[name](grid, (threads,), tuple(passed), shared_mem=shared)

    def gemm(
        self, A: Any, B: Any, C: Any, alpha: float = 1.0, beta: float = 0.0, ta: bool = False, tb: bool = False,
        factors: Any = None,
    ) -> None:  # fmt: skip
        """Write C = alpha op(A) op(B) + beta C; matrices are row-major, op transposes where `ta`, `tb` say so.

        Matrices are float32 or bfloat16 (as uint16), sums float32, never TF32. cuBLAS counts by columns and so computes
        the transposed product, with the operands exchanged. A graph reads alpha and beta from the GPU: from `factors`,
        float32 (2,), where they change from step to step.
        """
        blas = self.cublas
        (m, k), n = A.shape[::-1] if ta else A.shape, B.shape[0] if tb else B.shape[1]
        sizes = int(tb), int(ta), n, m, k
        first, second, out = (
            (one.data.ptr, CUDA_R_16BF if one.dtype == np.uint16 else CUDA_R_32F, _leading(one)) for one in (B, A, C)
        )
        if self.fixed is not None:
            factors = self.factors(alpha, beta) if factors is None else factors
            self.fixed.blas.gemm(sizes, factors, (first, second, out))
            return
        self._numbers[:] = alpha, beta
        blas.gemmEx(
            self._handle, *sizes, self._alpha, *first, *second, self._beta, *out,
            blas.CUBLAS_COMPUTE_32F, blas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    def new_handle(self) -> int:
        """Return a handle of cuBLAS that lasts as long as this: one a stream, as bitwise repeats need its workspace."""
        handle: int = self.cublas.create()
        weakref.finalize(self, self.cublas.destroy, handle).atexit = False  # some 30 MB of the GPU
        return handle

    def blas_library(self) -> Any:
        """Return the cuBLAS that CuPy has loaded, by its own names."""
        return ctypes.CDLL(f"libcublas.so.{self.cublas.getVersion(self._handle) // 10_000}")

    def factors(self, alpha: float, beta: float) -> Any:
        """Return two numbers, float32 (2,), that stay in the GPU's memory."""
        if (alpha, beta) not in self._factors:
            self._factors[alpha, beta] = self.to_device(np.array([alpha, beta], np.float32))
        return self._factors[alpha, beta]

    def draw(self) -> int:
        """Return the seed by which weights are rounded next, 0 for to nearest."""
        self._drawn += self.stochastic
        return self._drawn * GOLDEN & 0xFFFFFFFF

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Return an array from CuPy's pool, which asks the driver for memory only where it has none of that size."""
        return self.cupy.empty(shape, dtype) if self.fixed is None else self.fixed.result(shape, dtype)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Return an array that keeps its memory between calls of one name."""
        size, dtype = math.prod(shape), np.dtype(dtype)
        known = self._buffers.get(name)
        if known is None or known.size < size or known.dtype != dtype:
            growing = known is not None and 2 * known.size > size
            self._buffers[name] = known = None  # the smaller one goes first: never both at once
            self._buffers[name] = known = self.cupy.empty((max(int(GROWTH * size) if growing else size, 1),), dtype)
        return known[:size].reshape(shape)

    def buffers(self) -> list[Any]:
        """Return all arrays that are kept between calls."""
        return list(self._buffers.values())

    def send(self, name: str, *arrays: np.ndarray) -> Any:
        """Return the arrays, of one dtype, one after another on the GPU; does not wait for it.

        They are good until the next call with this name.
        """
        if self.fixed is not None:
            return self.fixed.fed[name]
        if name not in self._senders:
            self._senders[name] = Sender(self.cupy)
        return self._senders[name].send(self, arrays)

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

    def copy(self, target: int, source: int, n_bytes: int, kind: int, stream: Any) -> None:
        """Copy bytes from address to address, in the order of a stream."""
        if n_bytes:
            self.cupy.cuda.runtime.memcpyAsync(target, source, n_bytes, kind, stream.ptr)


def free_bytes(cupy: Any) -> int:
    """Return the memory of the current GPU that is free, or that CuPy keeps for what it will need next."""
    return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())


def blocks_of(n: int, threads: int = THREADS) -> int:
    """Return the blocks for one thread an element."""
    return -(-n // threads)


def _leading(matrix: Any) -> int:
    """Return the elements from one row of a matrix to the next; at least its width, which cuBLAS asks for."""
    return int(max(matrix.strides[0] // matrix.dtype.itemsize, matrix.shape[1], 1))
