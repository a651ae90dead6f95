"""Adam (Kingma and Ba 2015, algorithm 1) with lazy rows; the bias correction counts the steps of the whole run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .base import EPSILON, FIRST, FIRST_SCALE, RATE, SECOND, SECOND_SCALE, Optimizer, Update

_ONE = np.float32(1)  # in kernels, a plain 1 would turn float32 into float64


@dataclass(frozen=True)
class Adam(Optimizer):
    """m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g g; w <- w - rate m^ / (sqrt(v^) + epsilon).

    m^ = m / (1 - beta1^steps), v^ = v / (1 - beta2^steps); m is s, v is t.

    Parameters
    ----------
    output_epsilon : float
        Epsilon of the output layer, in units of the mean gradient of a batch. The gradient of a rare label is mostly
        that of its negatives, 1e-5 to 1e-4 per step. With a small epsilon, Adam would turn it into full steps of noise,
        and labels that occur a hundred times would not be learned (docs/decisions/training.md).
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    output_epsilon: float = 4e-4

    adaptive = True
    slots = 2
    default_rate = 6e-3
    cuda = 4

    def update(self, rate: float, steps: int) -> Update:
        """Return the update of a step, with the epsilon of the output layer."""
        return super().update(rate, steps)._replace(output_epsilon=self.output_epsilon)

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write the decay rates, epsilon, and the bias corrections of this step."""
        hyper[FIRST], hyper[SECOND], hyper[EPSILON] = self.beta1, self.beta2, self.epsilon
        hyper[FIRST_SCALE] = 1.0 / (1.0 - self.beta1**steps)
        hyper[SECOND_SCALE] = 1.0 / math.sqrt(1.0 - self.beta2**steps)

    @staticmethod
    def state(g: Any, square: Any, s: Any, t: Any, h: Any) -> tuple[Any, Any]:
        """Return the new means of the gradient and of its square."""
        return h[FIRST] * s + (_ONE - h[FIRST]) * g, h[SECOND] * t + (_ONE - h[SECOND]) * g * g

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return rate m^ / (sqrt(v^) + epsilon)."""
        return h[RATE] * h[FIRST_SCALE] * s / (np.sqrt(t) * h[SECOND_SCALE] + h[EPSILON])


OPTIMIZER = Adam
