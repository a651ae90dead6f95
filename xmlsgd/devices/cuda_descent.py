"""Plain descent, W -= rate (dW + decay W), as a part of the product that makes dW: which updates, and its factors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..optimizers import CLIP, DECAY, RATE, SGD_KIND

if TYPE_CHECKING:
    from ..optimizers import Update


def is_descent(update: Update) -> bool:
    """Return whether a product can do the update."""
    return bool(update.kind == SGD_KIND and update.hyper[CLIP] == 0)


def numbers(update: Update) -> np.ndarray:
    """Return the numbers of an update, float32 (10,): the last two are the factors of dW and W in descent."""
    rate, decay = float(update.hyper[RATE]), float(update.hyper[DECAY])
    return np.append(update.hyper, np.array([-rate, 1 - rate * decay], np.float32))
