"""Steps as CUDA graphs: what kernels a step launches is noted once and launched as one from then on.

A graph's launches have fixed arguments. So all that changes from batch to batch lies at fixed places in the GPU's
memory, written before the graph is launched: rows, weights, the optimizer's numbers, the sorted entries and labels,
behind which `DROPPED` fills up the room for the batches that have most. What is sorted is sorted outside: it allocates.

CuPy refuses cuBLAS while a graph is captured, so products go to the library itself.
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
from .data import fill_entries, fill_labels
from .descent import with_factors
from .output import send_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...data.csr import CSR
    from ...nn.losses import Loss
    from ...nn.optimizers import Update
    from ..base import Layer, Targets
    from .data import Rows
    from .runtime import Runtime

WORKSPACE_BYTES = 32 << 20  # what cuBLAS asks for on Hopper
NONE_DROPPED = (0, 0, 1.0)  # seed, threshold and factor of no dropout
EAGER = 1  # steps of a kind before one is prepared for capture; the next one is captured
MOST = 16  # graphs that are kept: epochs have few sizes of batches
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
ON_DEVICE = 1  # CUBLAS_POINTER_MODE_DEVICE
COMPUTE_32F, DEFAULT = 68, -1  # cublasComputeType_t, cublasGemmAlgo_t


class GraphBlas:
    """cuBLAS by its own names, factors of products in the GPU's memory. `library` is what `ctypes` has loaded."""

    def __init__(self, library: Any, handle: int, runtime: Runtime) -> None:
        self._library, self._handle = library, ctypes.c_void_p(handle)
        self._workspace = runtime.empty((WORKSPACE_BYTES,), np.uint8)
        self._call("cublasSetStream_v2", ctypes.c_void_p(runtime.stream.ptr))
        size = ctypes.c_size_t(WORKSPACE_BYTES)
        self._call("cublasSetWorkspace_v2", ctypes.c_void_p(self._workspace.data.ptr), size)
        self._call("cublasSetPointerMode_v2", ctypes.c_int(ON_DEVICE))

    def gemm(self, sizes: tuple[int, ...], factors: Any, matrices: tuple[tuple[int, int, int], ...]) -> None:
        """Multiply; `sizes`: transposition of both operands, m, n, k; `matrices`: address, type, leading dimension."""
        at = factors.data.ptr
        first, second, out = (
            (ctypes.c_void_p(address), ctypes.c_int(kind), ctypes.c_int(leading)) for address, kind, leading in matrices
        )
        self._call(
            "cublasGemmEx", *map(ctypes.c_int, sizes), ctypes.c_void_p(at), *first, *second,
            ctypes.c_void_p(at + factors.dtype.itemsize), *out, ctypes.c_int(COMPUTE_32F), ctypes.c_int(DEFAULT),
        )  # fmt: skip

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; `RuntimeError` for any status but success."""
        status = getattr(self._library, name)(self._handle, *arguments)
        if status:
            raise RuntimeError(f"{name}: cuBLAS status {status}")


class Fixed:
    """What the launches of one kind of step read and write, at places that stay: the arguments of its graph.

    fed : arrays by the names under which steps send them. batches : of X and Y, with room for all entries of the kind.
    sorted : of X, key, row and value of each entry, of Y the keys of the labels (`fill_entries`, `fill_labels`).
    """

    def __init__(self, runtime: Runtime, blas: GraphBlas) -> None:
        self.runtime, self.blas = runtime, blas
        self.fed: dict[str, Any] = {}
        self.batches: dict[str, Any] = {}
        self.sorted: dict[str, tuple[Any, ...]] = {}
        self.graph: Any = None
        self.warm, self.value = False, None
        self._results: list[Any] = []
        self._given = 0
        self._buffers: list[Any] = []

    def feed(self, name: str, array: Any) -> Any:
        """Copy an array that was sent to its place, in the order of the stream."""
        if name not in self.fed:
            self.fed[name] = self.runtime.cupy.empty(array.shape, array.dtype)
        run, place = self.runtime, self.fed[name]
        run.copy(place.data.ptr, array.data.ptr, array.nbytes, DEVICE_TO_DEVICE, run.stream)
        return place

    def result(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return the place of the next result of a step."""
        if self._given == len(self._results):
            self._results.append(self.runtime.cupy.empty(shape, dtype))
        self._given += 1
        return self._results[self._given - 1]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the runtime take these places for what it would send and make; keep its buffers alive."""
        self._given, self.runtime.fixed = 0, self
        try:
            yield
        finally:
            self.runtime.fixed = None
            self._buffers = self.runtime.buffers()


class Graphs:
    """The graphs of a device's steps, by the kind of the step. Steps of data that travel have none."""

    def __init__(self, runtime: Runtime, rows: Rows, library: Callable[[], Any]) -> None:
        self._runtime, self._rows, self._library = runtime, rows, library
        self._seen: dict[Any, int] = {}
        self._kinds: dict[Any, Fixed] = {}
        self._blas: GraphBlas | None = None

    def replay(
        self, step: Callable[[], Any], network: Any, layers: Sequence[Layer], X: CSR, targets: Targets, update: Update
    ) -> Any | None:
        """Return the loss of a step, done as a graph, or None where it is to be launched as it is: the first of a kind.

        step : launches the step's kernels, which it chooses by these arguments.
        """
        Y, rows, _ = targets
        room = [_room(int((matrix.indptr[rows + 1] - matrix.indptr[rows]).sum())) for matrix in (X, Y)]
        x, y = (self._rows.resident(matrix, len(rows)) for matrix in (X, Y))
        if x is None or y is None:
            return None
        places = tuple(array.data.ptr for array in (*x, *y, *itertools.chain(*layers)))
        key = (network, len(rows), *room, places, update.kind, bool(update.hyper[CLIP] > 0))
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen <= EAGER or (key not in self._kinds and len(self._kinds) == MOST):
            return None
        if self._blas is None:
            self._blas = GraphBlas(self._library(), self._runtime.new_handle(), self._runtime)
        fixed = self._kinds.setdefault(key, Fixed(self._runtime, self._blas))
        self._prepare(fixed, room, X, targets, update, find_loss(network.loss))
        if not fixed.warm:  # libraries load what they need, and buffers find their places
            fixed.warm = True
            with fixed.in_use():
                return step()
        if fixed.graph is None:
            with fixed.in_use(), _without_collector():
                self._runtime.stream.begin_capture()
                try:
                    fixed.value = step()
                finally:
                    graph = self._runtime.stream.end_capture()
            fixed.graph = graph
        fixed.graph.launch(self._runtime.stream)
        return fixed.value

    def _prepare(self, fixed: Fixed, room: list[int], X: CSR, targets: Targets, update: Update, loss: Loss) -> None:
        """Write what changes from batch to batch to its places."""
        run, output = self._runtime, update.for_output()
        fixed.feed("weights", send_weights(run, targets, loss))
        fixed.feed("hyper", run.send("hyper", with_factors(update)))
        fixed.feed("output hyper", run.send("output hyper", with_factors(output)))
        for name, matrix, size in zip("XY", (X, targets.Y), room, strict=True):
            batch = self._rows.batch(matrix, targets.rows, name)
            spans = fixed.feed(f"{name} spans", batch.spans)
            fixed.batches[name] = batch._replace(spans=spans, nnz=size)
            if name not in fixed.sorted:
                kinds = (np.int64, np.int32, np.float32) if name == "X" else (np.int64,)
                fixed.sorted[name] = tuple(run.cupy.empty((size,), kind) for kind in kinds)
            if name == "X":
                fill_entries(run, batch, NONE_DROPPED, *fixed.sorted[name])
            else:
                fill_labels(run, batch, *fixed.sorted[name])


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


def _room(n: int) -> int:
    """Return n rounded up by at most a quarter, to one of four sizes up to twice as many."""
    step = max(1 << max(n.bit_length() - 3, 0), 8)
    return -(-n // step) * step
