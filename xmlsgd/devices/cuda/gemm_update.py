"""SGD inside a matrix product: W = beta W + alpha dW is what GEMM computes, so plain SGD needs no other kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...nn.optimizers import CLIP, DECAY, RATE, SGD, Update


class Scalars(NamedTuple):
    """GEMM's alpha and beta, float32 (2,): cuBLAS reads those in host, kernels of our own those in device memory."""

    host: np.ndarray
    device: Any


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


def scalars_of(update: Update, hyper: Any) -> Scalars:
    """Return the scalars of an update whose `with_scalars` are `hyper` in device memory."""
    return Scalars(gemm_scalars(update), hyper[-2:])
