"""The output layer with a binary loss, as BCE: logits, loss, gradient and update, chunk after chunk.

A chunk's logits are float32, (B, labels of the chunk); its gradient is an operand of matrix products, bfloat16 or
float32.
"""

from __future__ import annotations

from typing import Any

from ...nn.optimizers import Update
from ..base import Layer
from .batches import DeviceRows, sorted_labels
from .chunks import LabelChunks, label_bytes, round_up, slice_layer
from .runtime import THREADS, WARP, blocks_of
from .updates import product_target, update_biases, update_rows, with_scalars

ROWS_PER_PART = 32  # rows whose gradients one thread adds up: B / 32 parts keep a GPU busy with few labels
LABELS_PER_THREAD = 4


class BinaryLossStep(LabelChunks):
    """The training step of an output layer with a binary loss a label."""

    def step(self, A: Any, labels: DeviceRows, scale: Any, layer: Layer, loss: int, update: Update) -> tuple[Any, Any]:
        """Update the layer on a batch; return the loss, float64 (1,), and dA (B, H); scale : weights of rows, (B,)."""
        run, B, H = self.runtime, A.shape[0], A.shape[1]
        scale = run.upload("weights", scale)
        hyper = run.upload("output hyper", with_scalars(update))
        chunks = self.chunks(len(layer.b), label_bytes(B, H, run.bfloat16))
        stride, parts = round_up(max(stop - start for start, stop in chunks)), blocks_of(B, ROWS_PER_PART)
        Z, G = run.buffer("Z", (B, stride)), run.buffer("G", (B, stride), run.operand)
        partial = run.buffer("partial", (parts, stride))
        keys, operand = sorted_labels(run, labels), self.operand("A operand", A)
        blocks = blocks_of(stride, THREADS * LABELS_PER_THREAD), parts
        losses = run.buffer("losses", (len(chunks) * blocks[0] * blocks[1] + labels.nnz,))
        positive = losses[len(losses) - labels.nnz :]
        dA, sums, n_sums = run.empty((B, H)), self.hidden_parts(B, H, chunks[0][1]), 0
        run.wait_for("labels")
        for c, (start, stop) in enumerate(chunks):
            part, n = slice_layer(layer, start, stop), stop - start
            W = self.operand("W operand", part.W)
            run.gemm(operand, W, Z[:, :n], tb=True)
            run.launch(
                "negatives", blocks, loss, Z, stride, part.b, scale, B, n, ROWS_PER_PART, G, partial,
                losses[c * blocks[0] * parts :],
            )  # fmt: skip
            run.launch(
                "positives", blocks_of(labels.nnz, WARP), loss, keys, labels.nnz, start, n, Z, stride, part.b, scale, G,
                partial, positive,
            )  # fmt: skip
            n_sums = self.add_hidden(G[:, :n], W[:, :H], sums, n_sums)
            out, scalars = product_target(run, part, update, hyper)
            self.multiply_into(out, G[:, :n], operand[:, :H], scalars)
            if out is not part.W:
                update_rows(run, part, out, update, hyper)
            update_biases(run, part, partial, update, hyper)
        run.has_read("labels")
        run.launch("sum_parts", blocks_of(dA.size), sums, n_sums, dA.size, dA)
        value = run.empty((1,), "float64")
        run.launch("total", 1, losses, losses.size, value)
        return value, dA
