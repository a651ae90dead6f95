"""Adam (Kingma and Ba 2015, algorithm 1) with lazy rows; the bias correction counts the steps of the whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.validation import below_one
from .base import EPSILON, FIRST, FIRST_SCALE, RATE, SECOND, SECOND_SCALE
from .rmsprop import RMSprop

_ONE = np.float32(1)  # in kernels, a plain 1 would turn float32 into float64


@dataclass(frozen=True)
class Adam(RMSprop):
    """RMSprop with the mean of the gradients in place of g.

    m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g g; w <- w - rate m^ / (sqrt(v^) + epsilon), where
    m^ = m / (1 - beta1^steps), v^ = v / (1 - beta2^steps); m is s, v is t.
    """

    beta2: float = below_one(0.999)
    beta1: float = below_one(0.9)

    slots = 2
    default_rate = 6e-3
    cuda = 4

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write both decay rates, epsilon, and the bias corrections of this step."""
        super().fill(hyper, steps)
        hyper[FIRST], hyper[FIRST_SCALE] = self.beta1, 1.0 / (1.0 - self.beta1**steps)

    @staticmethod
    def state(g: Any, square: Any, s: Any, t: Any, h: Any) -> tuple[Any, Any]:
        """Return the new means of the gradient and of its square."""
        return h[FIRST] * s + (_ONE - h[FIRST]) * g, h[SECOND] * t + (_ONE - h[SECOND]) * g * g

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return rate m^ / (sqrt(v^) + epsilon)."""
        return h[RATE] * h[FIRST_SCALE] * s / (np.sqrt(t) * h[SECOND_SCALE] + h[EPSILON])


OPTIMIZER = Adam
