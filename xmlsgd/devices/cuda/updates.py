"""Updates of layers on a GPU: plain SGD inside a matrix product, all others by kernels.

GEMM computes W = alpha dW + beta W, which is SGD with weight decay, so that plain SGD needs no other kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...nn.optimizers import CLIP, DECAY, RATE, SGD, Update
from ..base import Layer
from .runtime import THREADS, WARP, Runtime, Scalars, blocks_of


def is_gemm_update(update: Update) -> bool:
    """Return whether a matrix product can perform the update: SGD without clipping."""
    return bool(type(update.optimizer) is SGD and update.hyper[CLIP] == 0)


def gemm_scalars(update: Update) -> np.ndarray:
    """Return alpha and beta of SGD with weight decay, float32 (2,): -learning rate and 1 - learning rate * decay."""
    rate, decay = float(update.hyper[RATE]), float(update.hyper[DECAY])
    return np.array([-rate, 1 - rate * decay], np.float32)


def with_scalars(update: Update) -> np.ndarray:
    """Return the hyperparameters of an update as kernels read them, float32 (8,), followed by `gemm_scalars`."""
    return np.append(update.hyper, gemm_scalars(update))


def product_target(run: Runtime, layer: Layer, update: Update, hyper: Any) -> tuple[Any, Scalars]:
    """Return where the product that computes the gradient of the weights writes to, and its scalars.

    It is the weights themselves for plain SGD, else a buffer for `update_rows`. hyper : `with_scalars` of the update,
    in device memory.
    """
    if is_gemm_update(update):
        return layer.W, Scalars(gemm_scalars(update), hyper[-2:])
    return run.buffer("dW", layer.W.shape), run.scalars(1.0, 0.0)


def update_rows(run: Runtime, layer: Layer, dW: Any, update: Update, hyper: Any) -> None:
    """Update the weights of a layer by their gradient dW; hyper : of the update, in device memory."""
    n, H = layer.W.shape
    blocks = blocks_of(n, THREADS // WARP)
    run.launch("rows_update", blocks, layer.W, dW, layer.Ws, layer.Wt, n, H, update.kind, hyper)


def update_biases(run: Runtime, layer: Layer, partial: Any, update: Update, hyper: Any) -> None:
    """Update the biases (n,) of a layer by their gradient, the sum of `partial` (parts, at least n) over its parts."""
    n, (parts, stride) = len(layer.b), partial.shape
    run.launch(
        "biases_update", blocks_of(n), update.kind, layer.b, partial, parts, stride, n, layer.bs, layer.bt, hyper
    )
