"""The output layer on a GPU: logits, loss, gradient and update over a few chunks of labels.

A chunk's logits are float32, (B, labels of the chunk); its gradient is an operand of the products, bfloat16 or
float32. Softmax goes over the labels twice: once for the sums of its rows, once, backwards, for gradients, so that the
logits of the last chunk are computed once, and all of them where one chunk holds all labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .chunks import Chunks, padded, part_of
from .data import fill_labels
from .descent import factors_of, is_descent, with_factors
from .runtime import THREADS, WARP, blocks_of

if TYPE_CHECKING:
    from ...nn.losses import Loss
    from ...nn.optimizers import Update
    from ..base import Layer, Targets
    from .data import Batch
    from .runtime import Runtime

ROWS_A_PART = 32  # rows whose gradients one thread of the loss adds up: B / 32 parts keep a GPU busy with few labels
PER_LANE = 4  # labels of a thread of the loss


class Weights(NamedTuple):
    """How the rows of a batch count, on the GPU, float32 (B,): weight and, for softmax, share of each of its labels."""

    scale: Any
    target: Any


def send_weights(runtime: Runtime, targets: Targets, loss: Loss) -> Any:
    """Send what the rows of a batch weigh, and behind that the target of each label of a row, float32 (2 B,)."""
    target, scale = np.zeros(len(targets.rows), np.float32), targets.scale
    if loss.normalized:
        target, scale = targets.of_softmax()
    return runtime.send("weights", np.asarray(scale, np.float32), target)


class OutputStep(Chunks):
    """The training step of the output layer."""

    def step(
        self, A: Any, labels: Batch, weights: Weights, layer: Layer, loss: Loss, update: Update
    ) -> tuple[Any, Any]:
        """Update the layer on a batch; return the loss, float64 (1,), and dA (B, H)."""
        run, B, H = self.runtime, A.shape[0], A.shape[1]
        hyper = run.send("output hyper", with_factors(update))
        chunks = self.chunks(B, H, len(layer.b))
        width = max(stop - start for start, stop in chunks)
        stride, parts = padded(width), -(-B // ROWS_A_PART)
        Z, G = run.buffer("Z", (B, stride)), run.buffer("G", (B, stride), run.operand)
        partial = run.buffer("partial", (parts, stride))
        keys = label_keys(run, labels)
        operand = self.operand("A operand", A)
        log_sum, W = self._log_sums(operand, layer, chunks, Z) if loss.normalized else (weights.scale, None)
        blocks = blocks_of(stride, THREADS * PER_LANE), parts
        losses = run.buffer("losses", (len(chunks) * blocks[0] * blocks[1] + labels.nnz,))
        positive = losses[len(losses) - labels.nnz :]
        dA = run.empty((B, H))
        for c, (start, stop) in reversed(list(enumerate(chunks))):
            part, n, last = part_of(layer, start, stop), stop - start, stop == len(layer.b)
            W = W if last and W is not None else self._logits(operand, part, Z)
            run.launch(
                "negatives", blocks, loss.on_cuda(), Z, stride, part.b, weights.scale, log_sum, B, n, ROWS_A_PART, G,
                partial, losses[c * blocks[0] * parts :],
            )  # fmt: skip
            run.launch(
                "positives", blocks_of(labels.nnz), loss.on_cuda(), keys, labels.nnz, start, n, Z, stride, part.b,
                weights.scale, weights.target, log_sum, G, partial, positive,
            )  # fmt: skip
            run.gemm(G[:, :n], W[:, :H], dA, beta=float(not last))
            self._update(G[:, :n], operand[:, :H], part, update, hyper)
            run.launch(
                "biases_update", blocks_of(n), update.kind, part.b, partial, parts, stride, n, part.bs, part.bt, hyper
            )
        value = run.empty((1,), np.float64)
        run.launch("total", 1, losses, losses.size, value)
        return value, dA

    def _update(self, G: Any, A: Any, part: Layer, update: Update, hyper: Any) -> None:
        """Update the weights of a chunk by G^T A; plain descent is part of that product."""
        run = self.runtime
        if is_descent(update):
            factors = factors_of(update, hyper)
            alpha, beta = factors.host
            run.gemm(G, A, part.W, alpha=alpha, beta=beta, ta=True, factors=factors.placed)
            return
        n, H = part.W.shape
        dW = run.buffer("dW", (n, H))
        run.gemm(G, A, dW, ta=True)
        run.launch("rows_update", blocks_of(n, THREADS // WARP), part.W, dW, part.Ws, part.Wt, n, H, update.kind, hyper)

    def _logits(self, operand: Any, part: Layer, Z: Any) -> Any:
        """Write the logits of a chunk, without biases, into Z; return its weights as an operand."""
        W = self.operand("W operand", part.W, self.runtime.draw())
        self.runtime.gemm(operand, W, Z[:, : len(part.b)], tb=True)
        return W

    def _log_sums(self, operand: Any, layer: Layer, chunks: list[tuple[int, int]], Z: Any) -> tuple[Any, Any]:
        """Return the log of each row's sum of exponentials over all labels, (B,), and the last chunk's operand."""
        run, B = self.runtime, len(operand)
        largest, total = run.buffer("largest", (B,)), run.buffer("total", (B,))
        for start, stop in chunks:
            part = part_of(layer, start, stop)
            W = self._logits(operand, part, Z)
            run.launch("softmax_sums", B, Z, Z.shape[1], part.b, stop - start, start == 0, largest, total)
        run.launch("log_sums", blocks_of(B), largest, total, B)
        return largest, W


def label_keys(run: Runtime, labels: Batch) -> Any:
    """Return label * 2^32 + batch row of every label of the batch, ascending, int64."""
    if run.fixed is not None:
        return run.fixed.sorted["Y"][0]
    keys = run.buffer("label keys", (labels.nnz,), np.int64)
    fill_labels(run, labels, keys)
    return keys
