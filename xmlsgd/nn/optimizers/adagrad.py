"""Adagrad (Duchi, Hazan and Singer 2011): s <- s + g g; w <- w - rate g / (sqrt(s) + epsilon)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.validation import above_zero
from .base import EPSILON, RATE, Optimizer


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """s <- s + g g; w <- w - rate g / (sqrt(s) + epsilon)."""

    epsilon: float = above_zero(1e-8)

    adaptive = True
    slots = 1
    default_rate = 0.1
    cuda = 2

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write epsilon."""
        hyper[EPSILON] = self.epsilon

    @staticmethod
    def state(g: Any, square: Any, s: Any, t: Any, h: Any) -> tuple[Any, Any]:
        """Return the new sum of squares."""
        return s + square, t

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return rate g / (sqrt(s) + epsilon)."""
        return h[RATE] * g / (np.sqrt(s) + h[EPSILON])


OPTIMIZER = Adagrad
