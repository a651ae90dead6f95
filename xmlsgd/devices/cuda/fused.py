"""Softmax with one exponential a logit, taken inside products of our own (`products.cu`).

The logits are never written, nor rounded, which saves 4 of the 12 bytes of traffic a logit, and the sums of the biases
are two more columns of the product that updates weights, which saves 2. Operands are bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .chunks import part_of
from .once import SoftmaxOnce, with_factor
from .runtime import PRODUCTS, WARP, blocks_of, defined

if TYPE_CHECKING:
    from ..base import Layer
    from .descent import Factors
    from .once import Exponentials

LABELS, DEEP, STAGES, GROUP = defined(PRODUCTS, "LABELS", "DEEP", "STAGES", "GROUP")
ROWS_DEEP, WIDE, WEIGHT_STAGES = defined(PRODUCTS, "ROWS_DEEP", "WIDE", "WEIGHT_STAGES")
PRODUCT_THREADS = 4 * WARP
BAND = 384  # blocks that read the same rows: about what an H100 runs at once, three on each of 132 multiprocessors
EXPONENTIALS_SHARED = 2 * STAGES * 2 * LABELS * DEEP  # bytes
WEIGHTS_SHARED = 2 * WEIGHT_STAGES * ROWS_DEEP * (LABELS + GROUP + WIDE)


class FusedSoftmax(SoftmaxOnce):
    """The training step of a softmax output layer on a GPU that multiplies bfloat16."""

    unit = LABELS  # sums are of blocks of labels, counted over all chunks

    def _exponentials(self, A: Any, layer: Layer, chunks: list[tuple[int, int]], e: Exponentials) -> Any:
        run, (B, stride), L, operand = self.runtime, e.E.shape, len(layer.b), self.operand("A operand", A)
        tiles = blocks_of(L, LABELS)
        sums = run.buffer("sums", (B, tiles, 2))
        for start, stop in chunks:
            part, n = part_of(layer, start, stop), stop - start
            W = self._weights(part)
            run.launch(
                "product_exponentials", blocks_of(B, LABELS) * blocks_of(n, LABELS), operand, W, part.b, e.reference,
                W.shape[1], B, n, start, stride, tiles, BAND, e.E, sums, threads=PRODUCT_THREADS,
                shared=EXPONENTIALS_SHARED,
            )  # fmt: skip
        run.launch("common_reference", B, sums, tiles, stride, L, e.E, e.largest, e.total)
        return W

    def _weights(self, part: Layer) -> Any:
        return self.operand("W operand", part.W, self.runtime.draw())

    def _products(self, e: Exponentials, start: int, W: Any, factors: Factors) -> Any:
        run, (n, H), (B, stride), width = self.runtime, W.shape, e.E.shape, e.scaled.shape[1]
        partial = run.buffer("partial", (1, n))
        run.launch(
            "product_weights", blocks_of(n, LABELS) * blocks_of(with_factor(H), WIDE), e.E, stride, start, e.scaled,
            width, B, n, H, factors.placed, W, partial, threads=PRODUCT_THREADS, shared=WEIGHTS_SHARED,
        )  # fmt: skip
        return partial
