"""The definition of every operation of a device: slow, in plain NumPy and loops, close to the equations.

Names and their order are those of `cpu/device.py`. Sums are computed in float64 and rounded once to float32, when a
result or a parameter is written; so this is also the most accurate device.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from ..data.csr import CSR
from ..nn.losses import Loss
from ..nn.optimizers import CLIP, DECAY, RATE, Optimizer, Update
from .base import EXACT, GOLDEN, Device, Dropout, Layer, Rounding, Targets


class Reference(Device):
    """The device that defines what other devices compute; for tests and small examples."""

    def start(self) -> nullcontext[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def load_kernels(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, as nothing is compiled."""

    def input_forward(self, X: CSR, rows: np.ndarray, layer: Layer) -> np.ndarray:
        """Return A (B, H) = relu(X[rows] W + b)."""
        Z = dense_rows(X, rows) @ layer.W.astype(np.float64) + layer.b
        return np.maximum(Z, 0).astype(np.float32)

    def dense_forward(self, A: np.ndarray, layer: Layer) -> np.ndarray:
        """Return relu(A W^T + b)."""
        return np.maximum(logits(A, layer), 0).astype(np.float32)

    def drop(self, A: np.ndarray, dropout: Dropout) -> None:
        """Apply dropout to A in place."""
        mask = kept(dropout, np.arange(A.size)).reshape(A.shape)
        A[:] = np.where(mask, A * dropout.factor, 0)

    def output_step(
        self, A: np.ndarray, targets: Targets, layer: Layer, loss: Loss, update: Update, rounding: Rounding = EXACT
    ) -> tuple[float, np.ndarray]:
        """Update the output layer on one batch; return the loss, weighed by row, and dA."""
        has, scale = indicator(targets.Y, targets.rows), targets.scale
        value, dZ = loss_and_gradient(loss, logits(A, layer), has)
        dZ *= scale[:, None]
        db, touched = dZ.sum(axis=0), np.arange(len(layer.W))
        if rounding.threshold > 0:
            dZ, touched = rounded(dZ, has, scale, rounding)
        dA = dZ @ layer.W
        update_rows(touched, dZ.T @ A, layer, update)
        update_biases(db, layer, update)
        return float(value @ scale), dA.astype(np.float32)

    def dense_step(self, A: np.ndarray, dZ: np.ndarray, layer: Layer, update: Update) -> np.ndarray:
        """Update a dense layer given the gradient dZ of its pre-activations; return the gradient of its input A."""
        dZ = dZ.astype(np.float64)
        dA, dW, db = dZ @ layer.W, dZ.T @ A, dZ.sum(axis=0)
        update_rows(range(len(layer.W)), dW, layer, update)
        update_biases(db, layer, update)
        return dA.astype(np.float32)

    def input_step(self, X: CSR, rows: np.ndarray, dZ: np.ndarray, layer: Layer, update: Update) -> None:
        """Update the rows of W for the features of the batch, and b, given the gradient dZ of the pre-activations."""
        dZ = dZ.astype(np.float64)
        dW, db = dense_rows(X, rows).T @ dZ, dZ.sum(axis=0)
        touched = np.unique(X.columns_of(rows))
        update_rows(touched, dW, layer, update)
        update_biases(db, layer, update)

    def top_k(
        self, A: np.ndarray, layer: Layer, k: int, floor: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return labels int32 (n, k) and logits float32 (n, k), best first; of equal logits, the smaller label first.

        If k > L, labels -1 and logits -inf follow.
        """
        Z = logits(A, layer).astype(np.float32)
        order = np.argsort(-Z, axis=1, kind="stable")[:, :k]
        labels, scores = np.full((len(A), k), -1, np.int32), np.full((len(A), k), -np.inf, np.float32)
        labels[:, : order.shape[1]] = order
        scores[:, : order.shape[1]] = np.take_along_axis(Z, order, axis=1)
        return labels, scores


def hashed(seed: int, index: np.ndarray) -> np.ndarray:
    """Return a hash of (seed, index), uint32: the 32-bit finaliser of MurmurHash3 (Appleby 2011, public domain)."""
    # Products wrap around.
    h = index.astype(np.uint32) * np.uint32(GOLDEN) + np.uint32(seed)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def kept(dropout: Dropout, index: np.ndarray) -> np.ndarray:
    """Return which entries survive dropout: those whose hash of (seed, index) is at least the share times 2^32."""
    return hashed(dropout.seed, index) >= dropout.threshold


def rounded(dZ: np.ndarray, has: np.ndarray, scale: np.ndarray, rounding: Rounding) -> tuple[np.ndarray, np.ndarray]:
    """Return dZ (B, L) sparsified as `Rounding` says, and the labels with a gradient left.

    Gradients of true labels, `has` (B, L), are not rounded, but dropped in rows of weight 0.
    """
    B, L = dZ.shape
    words = hashed(rounding.seed, np.arange(L)) + np.arange(B, dtype=np.uint32)[:, None] * np.uint32(GOLDEN)
    limit = (rounding.threshold * scale)[:, None]
    keeps = (has & (limit > 0)) | (dZ > ((words >> np.uint32(9)) + 0.5) * 2.0**-23 * limit)
    return np.where(keeps, np.where(has, dZ, np.maximum(dZ, limit)), 0), np.flatnonzero(keeps.any(axis=0))


def dense_rows(X: CSR, rows: np.ndarray) -> np.ndarray:
    """Return X[rows] as a dense matrix, float64 (B, F)."""
    dense = np.zeros((len(rows), X.n_cols))
    for i, row in enumerate(rows):
        columns, values = X.row(row)
        dense[i, columns] = values
    return dense


def indicator(Y: CSR, rows: np.ndarray) -> np.ndarray:
    """Return which labels each row has, bool (B, L)."""
    has = np.zeros((len(rows), Y.n_cols), bool)
    for i, row in enumerate(rows):
        has[i, Y.row(row)[0]] = True
    return has


def logits(A: np.ndarray, layer: Layer) -> np.ndarray:
    """Return A W^T + b, float64."""
    return A.astype(np.float64) @ layer.W.T + layer.b


def loss_and_gradient(loss: Loss, Z: np.ndarray, has: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss of each row (B,) and its gradient by the logits Z (B, L); 0 for rows that a loss skips."""
    target, log_sum, counted = has.astype(np.float64), np.zeros((len(Z), 1)), np.ones((len(Z), 1))
    if loss.normalized:
        counts, top = has.sum(axis=1, keepdims=True), Z.max(axis=1, keepdims=True)
        target, counted = has / np.maximum(counts, 1), counts > 0
        log_sum = top + np.log(np.exp(Z - top).sum(axis=1, keepdims=True))
    value, gradient = loss.value_and_gradient(Z, target, log_sum)
    return (value * counted).sum(axis=1), gradient * counted


def update_rows(rows: Any, dW: np.ndarray, layer: Layer, update: Update) -> None:
    """Clip the gradient of each of the given rows, then update the row and its state in place."""
    limit = update.hyper[CLIP]
    for row in rows:
        g = dW[row]
        if limit > 0 and (norm := np.linalg.norm(g)) > limit:
            g = g * (limit / norm)
        s, t = layer.Ws[min(row, len(layer.Ws) - 1)], layer.Wt[min(row, len(layer.Wt) - 1)]
        update_row(update.optimizer, layer.W[row], g, s, t, update.hyper)


def update_biases(db: np.ndarray, layer: Layer, update: Update) -> None:
    """Update the biases in place, without decay or clipping, with state of their own."""
    update = update.for_biases()
    update_row(update.optimizer, layer.b, db, layer.bs, layer.bt, update.hyper)


def update_row(
    optimizer: Optimizer, w: np.ndarray, g: np.ndarray, s: np.ndarray, t: np.ndarray, hyper: np.ndarray
) -> None:
    """Update w (m,) by its gradient g (m,) in place; s and t are the state, (m,), or (1,) if the row shares it."""
    h = hyper.astype(np.float64)
    if optimizer.slots:
        square = np.mean(g * g) if optimizer.row_state and len(w) > len(s) else g * g
        s[:], t[:] = optimizer.state(g, square, s.astype(np.float64), t.astype(np.float64), h)
    w[:] = w * (1 - h[RATE] * h[DECAY]) - optimizer.step(g, s, t, h)


DEVICE = Reference
