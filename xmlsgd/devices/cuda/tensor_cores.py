"""The softmax output layer with bfloat16 operands: exponentials inside matrix products of our own (`tensor_cores.cu`).

The logits are neither written nor rounded, which saves 4 of the 12 bytes of traffic a logit of a cuBLAS product and a
sweep. Up to 134 hidden units, the sums of the biases are two more columns of the product that updates weights, which
saves 2.
"""

from __future__ import annotations

from typing import Any

from ..base import Layer
from .chunks import slice_layer
from .kernels import TENSOR_CORES, defined
from .runtime import WARP, Scalars, blocks_of
from .softmax import Exponentials, SoftmaxStep, scaled_columns

(LABELS,) = defined("common", "LABELS")
DEEP, STAGES, GROUP = defined(TENSOR_CORES, "DEEP", "STAGES", "GROUP")
ROWS_DEEP, WIDE, WEIGHT_STAGES = defined(TENSOR_CORES, "ROWS_DEEP", "WIDE", "WEIGHT_STAGES")
PRODUCT_THREADS = 4 * WARP
BAND = 384  # blocks that read the same rows: about what an H100 runs at once, three on each of 132 multiprocessors
EXPONENTIALS_SHARED = 2 * STAGES * 2 * LABELS * DEEP  # bytes
WEIGHTS_SHARED = 2 * WEIGHT_STAGES * ROWS_DEEP * (LABELS + GROUP + WIDE)


class TensorCoreSoftmaxStep(SoftmaxStep):
    """The training step of a softmax output layer on a GPU that multiplies bfloat16."""

    unit = LABELS  # sums are of blocks of labels, counted over all chunks

    def _exponentials(self, operand: Any, W: Any, layer: Layer, chunks: list[tuple[int, int]], e: Exponentials) -> Any:
        run, (B, stride), L = self.runtime, e.E.shape, len(layer.b)
        tiles = blocks_of(L, LABELS)
        sums = run.buffer("sums", (B, tiles, 2))
        for start, stop in chunks:
            part = slice_layer(layer, start, stop)
            W = self.operand("W operand", part.W) if start else W
            self._exponentials_of(operand, W, part.b, start, e, sums)
        run.launch("common_reference", B, sums, tiles, stride, L, e.E, e.largest, e.total)
        return W

    def _exponentials_of(self, operand: Any, W: Any, b: Any, start: int, e: Exponentials, sums: Any) -> None:
        """Write E of a chunk of labels, from `start` on, and the sums (B, tiles, 2) of its blocks of LABELS labels."""
        (B, stride), (n, width), tiles = e.E.shape, W.shape, sums.shape[1]
        self.runtime.launch(
            "product_exponentials", blocks_of(B, LABELS) * blocks_of(n, LABELS), operand, W, b, e.reference, width, B,
            n, start, stride, tiles, BAND, e.E, sums, threads=PRODUCT_THREADS, shared=EXPONENTIALS_SHARED,
        )  # fmt: skip

    def _weight_product(self, e: Exponentials, start: int, W: Any, scalars: Scalars) -> Any:
        if scaled_columns(W.shape[1]) > WIDE:  # cuBLAS reads E again for the sums of the biases, and is faster
            return super()._weight_product(e, start, W, scalars)
        run, (n, H), (B, stride), width = self.runtime, W.shape, e.E.shape, e.scaled.shape[1]
        partial = run.buffer("partial", (1, n))
        run.launch(
            "product_weights", blocks_of(n, LABELS), e.E, stride, start, e.scaled, width, B, n, H, scalars.device, W,
            partial, threads=PRODUCT_THREADS, shared=WEIGHTS_SHARED,
        )  # fmt: skip
        return partial
