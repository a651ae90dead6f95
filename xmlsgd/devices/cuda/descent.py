"""Plain descent, W -= rate (dW + decay W), done by the product that makes dW: for which updates, with which factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...nn.optimizers import CLIP, DECAY, RATE, SGD

if TYPE_CHECKING:
    from ...nn.optimizers import Update


class Factors(NamedTuple):
    """What a product multiplies its result with, and what it is added to: float32 (2,), also on the GPU."""

    host: np.ndarray
    placed: Any


def is_descent(update: Update) -> bool:
    """Return whether a product can do the update."""
    return bool(type(update.optimizer) is SGD and update.hyper[CLIP] == 0)


def descent_factors(update: Update) -> np.ndarray:
    """Return the factors of dW and of W in plain descent, float32 (2,): -rate and 1 - rate * decay."""
    rate, decay = float(update.hyper[RATE]), float(update.hyper[DECAY])
    return np.array([-rate, 1 - rate * decay], np.float32)


def with_factors(update: Update) -> np.ndarray:
    """Return the hyperparameters of an update as kernels read them, float32 (8,), then its `descent_factors`."""
    return np.append(update.hyper, descent_factors(update))


def factors_of(update: Update, hyper: Any) -> Factors:
    """Return the factors of descent, given `with_factors` on the GPU."""
    return Factors(descent_factors(update), hyper[-2:])
