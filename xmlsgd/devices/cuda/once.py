"""Softmax with one exponential a logit: E = exp(logit - row's largest) is kept for all labels, as an operand.

Three products a step instead of four, and 12 bytes of traffic a logit in bfloat16 instead of 18, for a buffer (B, L).
The gradient of the logits is E times a factor of each row, minus the shares of its labels. So both products of the
backward pass read E itself: the factor scales their result or their other operand; what labels change is added apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...nn.optimizers import RATE
from .chunks import ALIGNMENT, Chunks, padded, part_of
from .descent import Factors, factors_of, is_descent, with_factors
from .output import ROWS_A_PART, Weights, label_keys
from .runtime import THREADS, WARP, blocks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...nn.optimizers import Update
    from ..base import Layer
    from .data import Batch

    AddPositives = Callable[[int, Any, Any, Any], None]  # of `SoftmaxOnce.step`

ACTIVATIONS, WEIGHTS, NO_REFERENCE = range(3)  # kinds of operands, as in kernels.cu
EXTRA = 3  # columns of an operand: bias in two parts, reference
VECTOR = 16  # bytes that a thread reads at once
LINE, SECTOR = 64, 16  # operands of 128 and 32 bytes: rows of E begin on lines of a cache, of `scaled` on sectors
PILOT = 4096  # labels whose largest logit is a row's reference, with those of its own labels


class Exponentials(NamedTuple):
    """E of a batch and what makes a gradient of it; all but E and `scaled` are float32 (B,)."""

    E: Any  # (B, at least L) operands
    reference: Any  # E = exp(logit - reference - largest)
    largest: Any
    total: Any  # sums of the rows of E
    factor: Any  # E times it is the gradient of the logits, but for the rows' own labels
    scaled: Any  # operands, of whose columns the first H are the activations times `factor`


class SoftmaxOnce(Chunks):
    """The training step of a softmax output layer. Weights, not E, are in chunks of about `chunk_bytes`."""

    unit = ALIGNMENT  # chunks begin on multiples of it

    def step(self, A: Any, labels: Batch, weights: Weights, layer: Layer, update: Update) -> tuple[Any, Any]:
        """Update the layer on a batch; return the loss, float64 (1,), and dA (B, H)."""
        run, (B, H), L = self.runtime, A.shape, len(layer.b)
        warps, hyper = blocks_of(B, THREADS // WARP), run.send("output hyper", with_factors(update))
        e = self._buffers(B, H, L)
        self._logits(self._columns("A columns", A, e.reference, NO_REFERENCE), part_of(layer, 0, min(PILOT, L)), e.E)
        score, pulled = run.buffer("score", (B,)), run.buffer("pulled", (B, H))
        run.launch(
            "references", warps, e.E, e.E.shape[1], min(PILOT, L), labels.spans, labels.indices, A, layer.W, layer.b,
            B, H, e.reference, pulled, score,
        )  # fmt: skip
        chunks = self._chunks(B, H, L, update)
        W = self._exponentials(A, layer, chunks, e)
        losses = run.buffer("losses", (B,))
        run.launch(
            "row_factors", warps, A, weights.scale, weights.target, e.reference, e.largest, e.total, score, B, H,
            e.scaled.shape[1], e.factor, e.scaled, losses,
        )  # fmt: skip
        dA, keys = run.empty((B, H)), label_keys(run, labels)

        def add_positives(start: int, step: Any, W: Any, partial: Any) -> None:
            """Add `step`, (1,) there, times what labels change to weights, or their gradient, and to sums of biases."""
            run.launch(
                "positive_weights", blocks_of(labels.nnz, THREADS // WARP), keys, labels.nnz, start, len(W), A,
                weights.scale, weights.target, H, step, W, partial,
            )  # fmt: skip

        for start, stop in reversed(chunks):
            part = part_of(layer, start, stop)
            W = W if stop == L else self._weights(part)
            run.gemm(e.E[:, start:stop], W[:, :H], dA, beta=float(stop < L))
            self._update(e, start, part, update, hyper, add_positives)
        run.launch("finish_hidden", blocks_of(dA.size), dA, pulled, e.factor, weights.scale, weights.target, dA.size, H)
        value = run.empty((1,), np.float64)
        run.launch("total", 1, losses, B, value)
        return value, dA

    def _buffers(self, B: int, H: int, L: int) -> Exponentials:
        run = self.runtime
        reference, largest, total, factor = (
            run.buffer(name, (B,)) for name in ("reference", "largest", "total", "factor")
        )
        E = run.buffer("E", (B, padded(L, LINE)), run.operand)
        scaled = run.buffer("scaled", (B, padded(with_factor(H), SECTOR)), run.operand)
        return Exponentials(E, reference, largest, total, factor, scaled)

    def _chunks(self, B: int, H: int, L: int, update: Update) -> list[tuple[int, int]]:
        """Return chunks of half the bytes, beside E: of weights as operands, sums of biases, and gradients."""
        itemsize, parts = self.runtime.operand.itemsize, -(-B // ROWS_A_PART)
        a_label = padded(H + EXTRA) * itemsize + 4 * parts + (0 if is_descent(update) else 4 * H)
        size = max(self.chunk_bytes // 2 // a_label // self.unit * self.unit, self.unit)
        return [(start, min(start + size, L)) for start in range(0, L, size)]

    def _exponentials(self, A: Any, layer: Layer, chunks: list[tuple[int, int]], e: Exponentials) -> Any:
        """Fill E, `largest` and `total`; return the weights of the last chunk as an operand."""
        operand = self._columns("A columns", A, e.reference, ACTIVATIONS)
        for start, stop in chunks:
            W = self._logits(operand, part_of(layer, start, stop), e.E[:, start:])
        self.runtime.launch("exponentials", len(e.E), e.E, e.E.shape[1], len(layer.b), e.largest, e.total)
        return W

    def _weights(self, part: Layer) -> Any:
        """Return the weights of a chunk as an operand, of whose columns the first are theirs."""
        return self._columns("W columns", part.W, part.b, WEIGHTS)

    def _columns(self, name: str, matrix: Any, last: Any, kind: int) -> Any:
        """Return a matrix as an operand with the columns of its kind behind it."""
        run, (n, H) = self.runtime, matrix.shape
        out, seed = run.buffer(name, (n, padded(H + EXTRA)), run.operand), run.draw() if kind == WEIGHTS else 0
        run.launch("pack_columns", blocks_of(n, THREADS // WARP), matrix, last, n, H, out.shape[1], kind, seed, out)
        return out

    def _logits(self, operand: Any, part: Layer, E: Any) -> Any:
        """Write the logits of a chunk over the first columns of E; return its weights as an operand."""
        W = self._columns("W columns", part.W, part.b, WEIGHTS)
        self.runtime.gemm(operand, W, E[:, : len(part.b)], tb=True)
        return W

    def _update(
        self, e: Exponentials, start: int, part: Layer, update: Update, hyper: Any, add_positives: AddPositives
    ) -> None:
        """Update the weights of a chunk by E^T (factor A) minus its labels' shares; a product does plain descent."""
        run, (n, H) = self.runtime, part.W.shape
        if is_descent(update):
            partial = self._products(e, start, part.W, factors_of(update, hyper))
            add_positives(start, hyper[RATE : RATE + 1], part.W, partial)
        else:
            dW, warps = run.buffer("dW", (n, H)), blocks_of(n, THREADS // WARP)
            alone = Factors(np.array([1, 0], np.float32), run.factors(1.0, 0.0))
            partial = self._products(e, start, dW, alone)
            add_positives(start, run.factors(-1.0, 0.0)[:1], dW, partial)
            run.launch("rows_update", warps, part.W, dW, part.Ws, part.Wt, n, H, update.kind, hyper)
        run.launch(
            "biases_update", blocks_of(n), update.kind, part.b, partial, len(partial), n, n, part.bs, part.bt, hyper
        )

    def _products(self, e: Exponentials, start: int, W: Any, factors: Factors) -> Any:
        """Write W (n, H) = a E^T scaled + b W, where `factors` are (a, b).

        Return the sums of E^T factor, in parts of rows (parts, n).
        """
        run, (n, H), (B, stride) = self.runtime, W.shape, e.E.shape
        parts, labels = -(-B // ROWS_A_PART), THREADS * VECTOR // run.operand.itemsize
        partial = run.buffer("partial", (parts, n))
        run.launch(
            "exponential_sums", (blocks_of(n, labels), parts), e.E, stride, start, e.factor, B, n, ROWS_A_PART, partial
        )
        alpha, beta = factors.host
        run.gemm(e.E[:, start : start + n], e.scaled[:, :H], W, alpha=alpha, beta=beta, ta=True, factors=factors.placed)
        return partial


def with_factor(H: int) -> int:
    """Return the columns of `scaled`: H, and from an even one on a row's factor in two parts, for `FusedSoftmax`."""
    return H + H % 2 + 2
