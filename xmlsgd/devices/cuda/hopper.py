"""The softmax output layer on Hopper: its exponentials by a kernel of its own (`hopper.cu`).

At 512 hidden units it takes half the time of the one for all GPUs: docs/decisions/gpu.md. At most `ROWS` rows would
leave one block of each cluster idle.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .chunks import round_up
from .kernels import HOPPER, defined
from .runtime import Runtime, blocks_of
from .softmax import Exponentials
from .tensor_cores import LABELS, TensorCoreSoftmaxStep
from .tensor_map import encoded

ROWS, CHUNK, CHUNK_BYTES, MOST_CHUNKS, CLUSTER, THREADS, ALIGNED, MOST_STAGES, PARTS = defined(
    HOPPER, "HOPPER_ROWS", "CHUNK", "CHUNK_BYTES", "MOST_CHUNKS", "CLUSTER", "HOPPER_THREADS", "ALIGNED", "MOST_STAGES",
    "PARTS",
)  # fmt: skip
GROUP = 8  # labels, adjacent in the map of W
MOST_SHARED = 227 << 10  # bytes of a block
MULTIPROCESSORS = 16  # cudaDeviceAttr: their number


class HopperSoftmaxStep(TensorCoreSoftmaxStep):
    """The training step of a softmax output layer on a Hopper; up to `ROWS` rows are left to the other kernel."""

    def __init__(self, runtime: Runtime, chunk_bytes: int) -> None:
        super().__init__(runtime, chunk_bytes)
        runtime.allow_shared("hopper_exponentials", MOST_SHARED)
        self._multiprocessors = runtime.cupy.cuda.runtime.deviceGetAttribute(MULTIPROCESSORS, runtime.index)

    def _exponentials_of(self, operand: Any, W: Any, b: Any, start: int, e: Exponentials, sums: Any) -> None:
        run, (B, stride), (n, width) = self.runtime, e.E.shape, W.shape
        chunks = blocks_of(width, CHUNK)
        if B <= ROWS or chunks > MOST_CHUNKS:
            super()._exponentials_of(operand, W, b, start, e, sums)
            return
        stages, bands = stages_of(chunks), round_up(blocks_of(B, ROWS), CLUSTER)
        groups = min(max(self._multiprocessors // bands, 1), blocks_of(n, LABELS))
        run.launch(
            "hopper_exponentials", (bands, groups), operand, self._map_of(W), b, e.reference, width, B, n, start,
            stride, sums.shape[1], stages, e.E, sums, threads=THREADS, shared=shared_bytes(chunks, stages),
        )  # fmt: skip

    def _map_of(self, W: Any) -> Any:
        """Return the tensor map of W (n, width), by GROUP labels, in device memory until the next call."""
        n, width = W.shape
        row, sizes = width * W.dtype.itemsize, (width, GROUP, blocks_of(n, GROUP))
        box = CHUNK, GROUP // PARTS, LABELS // GROUP
        return self.runtime.upload("map", encoded(self.runtime.driver, W.data.ptr, sizes, (row, GROUP * row), box))


def shared_bytes(chunks: int, stages: int) -> int:
    """Return the shared memory of a block: stages, biases of as many tiles as they may hold, two barriers a stage."""
    return ALIGNED + stages * CHUNK_BYTES + (stages // chunks + 2) * LABELS * 4 + stages * 16


@cache
def stages_of(chunks: int) -> int:
    """Return the most stages that fit."""
    return max(stages for stages in range(MOST_STAGES + 1) if shared_bytes(chunks, stages) <= MOST_SHARED)
