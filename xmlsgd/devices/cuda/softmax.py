"""The softmax output layer: one exponential a logit, E = exp(logit - reference), kept for all labels as an operand.

The gradient of the logits is E times a factor of each row, minus the targets of the row's labels. So both products of
the backward pass read E itself: the factor scales the result of one and the other operand of the other, and what the
labels change is added separately. That makes three matrix products a step, for a buffer (B, L).

`SoftmaxStep` is for float32 operands and computes all products by cuBLAS; `tensor_cores.py` and, on a Hopper,
`hopper.py` are for bfloat16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...nn.optimizers import RATE, Update
from ..base import Layer, Targets
from .batches import DeviceRows, sorted_labels
from .chunks import LabelChunks, round_up, slice_layer
from .runtime import THREADS, TILE, WARP, Scalars, blocks_of
from .updates import is_gemm_update, product_target, update_biases, update_rows, with_scalars

VECTOR = 16  # bytes that a thread reads at once
LINE, SECTOR = 64, 16  # operands of 128 and 32 bytes: rows of E begin on cache lines, those of `scaled` on sectors
ROWS_OF_SUM = 128  # of E, which a thread adds up
PILOT = 4096  # labels whose largest logit is a row's reference, with those of its own labels


class Exponentials(NamedTuple):
    """E of a batch and what turns it into a gradient; all but E and `scaled` are float32 (B,)."""

    E: Any  # (B, at least L) operands
    reference: Any  # E = exp(logit - reference - largest)
    largest: Any
    total: Any  # sums of the rows of E
    factor: Any  # E times it is the gradient of the logits, but for the rows' own labels
    scaled: Any  # operands, of whose columns the first H are the activations times `factor`


class SoftmaxStep(LabelChunks):
    """The training step of a softmax output layer. Weights, not E, are in chunks of about `chunk_bytes`."""

    def step(self, A: Any, labels: DeviceRows, targets: Targets, layer: Layer, update: Update) -> tuple[Any, Any]:
        """Update the layer on a batch; return the loss, float64 (1,), and dA (B, H)."""
        run, (B, H), L = self.runtime, A.shape, len(layer.b)
        row_blocks, label_blocks = blocks_of(B, THREADS // WARP), (blocks_of(labels.nnz, WARP), blocks_of(H, TILE))
        row_target, row_scale = targets.of_softmax()
        uploaded, hyper = run.upload("weights", row_scale, row_target), run.upload("output hyper", with_scalars(update))
        scale, label_target = uploaded[:B], uploaded[B:]
        keys = sorted_labels(run, labels)
        e, operand = self._exponential_buffers(B, H, L), self.operand("A operand", A)
        gradient_bytes = 0 if is_gemm_update(update) else 4 * H
        chunks = self.chunks(L, round_up(H) * run.operand.itemsize + gradient_bytes)
        W = self.operand("W operand", slice_layer(layer, *chunks[0]).W)
        label_sum, score = self._references(A, operand, W[: min(PILOT, chunks[0][1])], labels, layer, e)
        W = self._exponentials(operand, W, layer, chunks, e)
        losses = run.buffer("losses", (B,))
        run.launch(
            "row_factors", row_blocks, A, scale, label_target, e.reference, e.largest, e.total, score, B, H,
            e.scaled.shape[1], e.factor, e.scaled, losses,
        )  # fmt: skip
        dA, parts, n_parts = run.empty((B, H)), self.hidden_parts(B, H, chunks[0][1]), 0
        run.wait_for("labels")
        for start, stop in reversed(chunks):  # backwards: the operand of the last chunk is at hand
            part = slice_layer(layer, start, stop)
            W = W if stop == L else self.operand("W operand", part.W)
            n_parts = self.add_hidden(e.E[:, start:stop], W[:, :H], parts, n_parts)
            # The weights change by E^T (factor A), minus the shares of labels. A product performs plain SGD.
            out, scalars = product_target(run, part, update, hyper)
            is_gradient = out is not part.W
            partial = self._weight_product(e, start, out, scalars)
            step = run.scalars(-1.0, 0.0).device[:1] if is_gradient else hyper[RATE : RATE + 1]
            run.launch(
                "positive_weights", label_blocks, keys, labels.nnz, start, stop - start, A, scale, label_target, H,
                step, out, partial, shared=4 * TILE * (THREADS // WARP),
            )  # fmt: skip
            if is_gradient:
                update_rows(run, part, out, update, hyper)
            update_biases(run, part, partial, update, hyper)
        run.has_read("labels")
        run.launch(
            "finish_hidden", blocks_of(dA.size), parts, n_parts, label_sum, e.factor, scale, label_target, dA.size, H,
            dA,
        )  # fmt: skip
        value = run.empty((1,), "float64")
        run.launch("total", 1, losses, B, value)
        return value, dA

    def _references(
        self, A: Any, operand: Any, pilot: Any, labels: DeviceRows, layer: Layer, e: Exponentials
    ) -> tuple[Any, Any]:
        """Fill `reference`; return the sums over each row's labels of their weights (B, H), and of their logits (B,).

        pilot : the weights of the first labels, as an operand.
        """
        run, (B, H), n = self.runtime, A.shape, len(pilot)
        logits, label_sum = run.buffer("pilot", (B, n)), run.buffer("label sum", (B, H))
        score = run.buffer("score", (B,))
        run.gemm(operand, pilot, logits, tb=True)
        run.launch(
            "references", B, logits, n, labels.spans, labels.indices, A, layer.W, layer.b, B, H, e.reference, label_sum,
            score,
        )  # fmt: skip
        return label_sum, score

    def _exponential_buffers(self, B: int, H: int, L: int) -> Exponentials:
        run = self.runtime
        reference, largest, total, factor = (
            run.buffer(name, (B,)) for name in ("reference", "largest", "total", "factor")
        )
        E = run.buffer("E", (B, round_up(L, LINE)), run.operand)
        scaled = run.buffer("scaled", (B, round_up(scaled_columns(H), SECTOR)), run.operand)
        return Exponentials(E, reference, largest, total, factor, scaled)

    def _exponentials(self, operand: Any, W: Any, layer: Layer, chunks: list[tuple[int, int]], e: Exponentials) -> Any:
        """Fill E, `largest` and `total`; W: the weights of the first chunk as an operand; return those of the last."""
        for start, stop in chunks:
            W = self.operand("W operand", slice_layer(layer, start, stop).W) if start else W
            self.runtime.gemm(operand, W, e.E[:, start:stop], tb=True)
        self.runtime.launch(
            "exponentials", len(e.E), e.E, e.E.shape[1], len(layer.b), layer.b, e.reference, e.largest, e.total
        )
        return W

    def _weight_product(self, e: Exponentials, start: int, W: Any, scalars: Scalars) -> Any:
        """Write W (n, H) = alpha E^T scaled + beta W; return the sums of E^T factor, in parts of rows (parts, n)."""
        run, (n, H), (B, stride) = self.runtime, W.shape, e.E.shape
        parts, labels = blocks_of(B, ROWS_OF_SUM), THREADS * VECTOR // run.operand.itemsize
        partial = run.buffer("partial", (parts, n))
        run.launch(
            "exponential_sums", (blocks_of(n, labels), parts), e.E, stride, start, e.factor, B, n, ROWS_OF_SUM, partial,
        )  # fmt: skip
        self.multiply_into(W, e.E[:, start : start + n], e.scaled[:, :H], scalars)
        return partial


def scaled_columns(H: int) -> int:
    """Return the columns of `scaled`: H, and from the next even one a row's factor in two parts (`tensor_cores.py`)."""
    return H + H % 2 + 2
