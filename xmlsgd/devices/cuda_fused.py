"""Softmax with one exponential a logit, taken inside products of our own (`cuda_products.cu`).

The logits are never written, nor rounded, which saves 4 of the 12 bytes of traffic a logit, and the sums of the biases
are two more columns of the product that updates weights, which saves 2. Operands are bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cuda_chunks import part_of
from .cuda_once import SoftmaxOnce, with_factor
from .cuda_runtime import PRODUCTS, WARP, blocks_of, defined

if TYPE_CHECKING:
    from .base import Layer
    from .cuda_descent import Factors

LABELS, DEEP, STAGES, GROUP = defined(PRODUCTS, "LABELS", "DEEP", "STAGES", "GROUP")
ROWS_DEEP, WIDE, WEIGHT_STAGES = defined(PRODUCTS, "ROWS_DEEP", "WIDE", "WEIGHT_STAGES")
PRODUCT_THREADS = 4 * WARP
BAND = 384  # blocks that read the same rows: about what an H100 runs at once, three on each of 132 multiprocessors
EXPONENTIALS_SHARED = 2 * STAGES * 2 * LABELS * DEEP  # bytes
WEIGHTS_SHARED = 2 * WEIGHT_STAGES * ROWS_DEEP * (LABELS + GROUP + WIDE)


class FusedSoftmax(SoftmaxOnce):
    """The training step of a softmax output layer on a GPU that multiplies bfloat16."""

    unit = LABELS  # sums are of blocks of labels, counted over all chunks

    def _exponentials(
        self, A: Any, reference: Any, layer: Layer, chunks: list[tuple[int, int]], E: Any, largest: Any, total: Any
    ) -> Any:
        run, B, L, operand = self.runtime, len(E), len(layer.b), self.operand("A operand", A)
        tiles = blocks_of(L, LABELS)
        sums = run.buffer("sums", (B, tiles, 2))
        for start, stop in chunks:
            part, n = part_of(layer, start, stop), stop - start
            W = self._weights(part)
            run.launch(
                "product_exponentials", blocks_of(B, LABELS) * blocks_of(n, LABELS), operand, W, part.b, reference,
                W.shape[1], B, n, start, E.shape[1], tiles, BAND, E, sums, threads=PRODUCT_THREADS,
                shared=EXPONENTIALS_SHARED,
            )  # fmt: skip
        run.launch("common_reference", B, sums, tiles, E.shape[1], L, E, largest, total)
        return W

    def _weights(self, part: Layer) -> Any:
        return self.operand("W operand", part.W, self.runtime.draw())

    def _products(self, E: Any, start: int, factor: Any, scaled: Any, W: Any, factors: Factors) -> Any:
        run, (n, H) = self.runtime, W.shape
        partial = run.buffer("partial", (1, n))
        run.launch(
            "product_weights", blocks_of(n, LABELS) * blocks_of(with_factor(H), WIDE), E, E.shape[1], start, scaled,
            scaled.shape[1], len(E), n, H, factors.placed, W, partial, threads=PRODUCT_THREADS, shared=WEIGHTS_SHARED,
        )  # fmt: skip
        return partial
