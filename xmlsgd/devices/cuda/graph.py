"""Training steps as CUDA graphs: the kernels of a step are captured once and launched as one from then on.

A captured launch has fixed arguments. So all that changes from batch to batch lies at fixed addresses, written before
the graph is launched: rows, weights, hyperparameters, and the sorted entries and labels, padded with `DROPPED` to a
capacity that many batches share. Sorting allocates memory, so it is done before, outside the graph.

CuPy refuses cuBLAS calls during a capture, so products call the library itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ...nn.losses import find_loss
from ...nn.optimizers import CLIP
from .batches import write_sorted_entries, write_sorted_labels
from .gemm_update import with_scalars
from .softmax import upload_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...data.csr import CSR
    from ...nn.losses import Loss
    from ...nn.optimizers import Update
    from ..base import Layer, Targets
    from .batches import BatchLoader
    from .runtime import Runtime

WORKSPACE_BYTES = 32 << 20  # what cuBLAS asks for on Hopper
NO_DROPOUT = (0, 0, 1.0)  # seed, threshold and factor
EAGER_STEPS = 1  # of a kind, before one that warms up its fixed memory; the next one is captured
MAX_GRAPHS = 16  # that are kept: epochs have few sizes of batches
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
ON_DEVICE = 1  # CUBLAS_POINTER_MODE_DEVICE
COMPUTE_32F, DEFAULT = 68, -1  # cublasComputeType_t, cublasGemmAlgo_t


class GraphCublas:
    """cuBLAS by `ctypes`, with alpha and beta of products in the GPU's memory; `library` is loaded by it."""

    def __init__(self, library: Any, handle: int, runtime: Runtime) -> None:
        self._library, self._handle = library, ctypes.c_void_p(handle)
        self._workspace = runtime.empty((WORKSPACE_BYTES,), np.uint8)
        self._call("cublasSetStream_v2", ctypes.c_void_p(runtime.stream.ptr))
        size = ctypes.c_size_t(WORKSPACE_BYTES)
        self._call("cublasSetWorkspace_v2", ctypes.c_void_p(self._workspace.data.ptr), size)
        self._call("cublasSetPointerMode_v2", ctypes.c_int(ON_DEVICE))

    def gemm(self, sizes: tuple[int, ...], scalars: Any, matrices: tuple[tuple[int, int, int], ...]) -> None:
        """Multiply; `sizes`: transposition of both operands, m, n, k; `matrices`: address, type, leading dimension."""
        at = scalars.data.ptr
        first, second, out = (
            (ctypes.c_void_p(address), ctypes.c_int(kind), ctypes.c_int(leading)) for address, kind, leading in matrices
        )
        self._call(
            "cublasGemmEx", *map(ctypes.c_int, sizes), ctypes.c_void_p(at), *first, *second,
            ctypes.c_void_p(at + scalars.dtype.itemsize), *out, ctypes.c_int(COMPUTE_32F), ctypes.c_int(DEFAULT),
        )  # fmt: skip

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; `RuntimeError` for any status but success."""
        status = getattr(self._library, name)(self._handle, *arguments)
        if status:
            raise RuntimeError(f"{name}: cuBLAS status {status}")


class StaticArrays:
    """Arrays at fixed addresses that the launches of one kind of step read and write.

    `inputs` : uploaded arrays by name. `batches` : of X and Y, with the capacity of the kind. `sorted` : key, row and
    value of each entry of X (`write_sorted_entries`), keys of the labels of Y (`write_sorted_labels`).
    """

    def __init__(self, runtime: Runtime, blas: GraphCublas) -> None:
        self.runtime, self.blas = runtime, blas
        self.inputs: dict[str, Any] = {}
        self.batches: dict[str, Any] = {}
        self.sorted: dict[str, tuple[Any, ...]] = {}
        self.graph: Any = None
        self.warm, self.value = False, None
        self._results: list[Any] = []
        self._n_given = 0
        self._buffers: list[Any] = []

    def copy_input(self, name: str, array: Any) -> Any:
        """Copy an uploaded array to its fixed address, in the order of the stream; return the array there."""
        if name not in self.inputs:
            self.inputs[name] = self.runtime.cupy.empty(array.shape, array.dtype)
        run, fixed = self.runtime, self.inputs[name]
        run.copy(fixed.data.ptr, array.data.ptr, array.nbytes, DEVICE_TO_DEVICE, run.stream)
        return fixed

    def result(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return the array of the next result of a step."""
        if self._n_given == len(self._results):
            self._results.append(self.runtime.cupy.empty(shape, dtype))
        self._n_given += 1
        return self._results[self._n_given - 1]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the runtime use these arrays for uploads and results; keep its buffers alive."""
        self._n_given, self.runtime.static = 0, self
        try:
            yield
        finally:
            self.runtime.static = None
            self._buffers = self.runtime.buffers()


class GraphCache:
    """The graphs of a device's steps, by the kind of the step; steps whose data are uploaded have none."""

    def __init__(self, runtime: Runtime, loader: BatchLoader, library: Callable[[], Any]) -> None:
        self._runtime, self._loader, self._library = runtime, loader, library
        self._seen: dict[Any, int] = {}
        self._kinds: dict[Any, StaticArrays] = {}
        self._blas: GraphCublas | None = None

    def replay(
        self, step: Callable[[], Any], network: Any, layers: Sequence[Layer], X: CSR, targets: Targets, update: Update
    ) -> Any | None:
        """Return the loss of a step run as a graph; None where it must be launched kernel by kernel, as the first is.

        `step` launches the kernels of the step, which it chooses by these arguments.
        """
        Y, rows, _ = targets
        room = [_capacity(int((matrix.indptr[rows + 1] - matrix.indptr[rows]).sum())) for matrix in (X, Y)]
        x, y = (self._loader.resident(matrix, len(rows)) for matrix in (X, Y))
        if x is None or y is None:
            return None
        addresses = tuple(array.data.ptr for array in (*x, *y, *itertools.chain(*layers)))
        key = (network, len(rows), *room, addresses, update.kind, bool(update.hyper[CLIP] > 0))
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen <= EAGER_STEPS or (key not in self._kinds and len(self._kinds) == MAX_GRAPHS):
            return None
        if self._blas is None:
            self._blas = GraphCublas(self._library(), self._runtime.new_handle(), self._runtime)
        static = self._kinds.setdefault(key, StaticArrays(self._runtime, self._blas))
        self._copy_inputs(static, room, X, targets, update, find_loss(network.loss))
        if not static.warm:  # libraries load what they need, and buffers get their addresses
            static.warm = True
            with static.in_use():
                return step()
        if static.graph is None:
            with static.in_use(), _without_collector():
                self._runtime.stream.begin_capture()
                try:
                    static.value = step()
                finally:
                    graph = self._runtime.stream.end_capture()
            static.graph = graph
        static.graph.launch(self._runtime.stream)
        return static.value

    def _copy_inputs(
        self, static: StaticArrays, room: list[int], X: CSR, targets: Targets, update: Update, loss: Loss
    ) -> None:
        """Write what changes from batch to batch to its fixed addresses."""
        run, output = self._runtime, update.for_output()
        static.copy_input("weights", upload_weights(run, targets, loss))
        static.copy_input("hyper", run.upload("hyper", with_scalars(update)))
        static.copy_input("output hyper", run.upload("output hyper", with_scalars(output)))
        for name, matrix, size in zip("XY", (X, targets.Y), room, strict=True):
            batch = self._loader.batch(matrix, targets.rows, name)
            spans = static.copy_input(f"{name} spans", batch.spans)
            static.batches[name] = batch._replace(spans=spans, nnz=size)
            if name not in static.sorted:
                kinds = (np.int64, np.int32, np.float32) if name == "X" else (np.int64,)
                static.sorted[name] = tuple(run.cupy.empty((size,), kind) for kind in kinds)
            if name == "X":
                write_sorted_entries(run, batch, NO_DROPOUT, *static.sorted[name])
            else:
                write_sorted_labels(run, batch, *static.sorted[name])


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the garbage collector: freeing memory of the GPU waits for it, which is an error during a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _capacity(n: int) -> int:
    """Return n rounded up by at most a quarter, to one of four sizes up to twice as many."""
    step = max(1 << max(n.bit_length() - 3, 0), 8)
    return -(-n // step) * step
