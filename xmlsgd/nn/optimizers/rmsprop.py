"""RMSprop (Tieleman and Hinton 2012), with Adam's bias correction of the second moment and lazy rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.validation import above_zero, below_one
from .base import EPSILON, RATE, SECOND, SECOND_SCALE, Optimizer, Update

_ONE = np.float32(1)  # in kernels, a plain 1 would turn float32 into float64


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """v <- beta2 v + (1 - beta2) g g; w <- w - rate g / (sqrt(v / (1 - beta2^steps)) + epsilon). v is s.

    Parameters
    ----------
    output_epsilon : float
        Epsilon of the output layer, in units of the mean gradient of a batch. The gradient of a rare label is mostly
        that of its negatives, 1e-5 to 1e-4 per step. A small epsilon would turn it into full steps of noise, and labels
        that occur a hundred times would not be learned (docs/decisions/training.md).
    """

    beta2: float = below_one(0.99)
    epsilon: float = above_zero(1e-8)
    output_epsilon: float = above_zero(4e-4)

    adaptive = True
    slots = 1
    default_rate = 5e-3
    cuda = 5

    def update(self, rate: float, steps: int) -> Update:
        """Return the update of a step, with the epsilon of the output layer."""
        return super().update(rate, steps)._replace(output_epsilon=self.output_epsilon)

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write the decay rate, epsilon, and the bias correction of this step."""
        hyper[SECOND], hyper[EPSILON] = self.beta2, self.epsilon
        hyper[SECOND_SCALE] = 1.0 / math.sqrt(1.0 - self.beta2**steps)

    @staticmethod
    def state(g: Any, square: Any, s: Any, t: Any, h: Any) -> tuple[Any, Any]:
        """Return the new mean of the squared gradients."""
        return h[SECOND] * s + (_ONE - h[SECOND]) * square, t

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return rate / (sqrt(v) + epsilon) g; where a row shares v, the quotient is computed once."""
        return h[RATE] / (np.sqrt(s) * h[SECOND_SCALE] + h[EPSILON]) * g


OPTIMIZER = RMSprop
