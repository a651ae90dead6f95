"""Row-wise Adagrad: one accumulator per row, of the mean of g g, 1/H of Adagrad's state; biases have their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .adagrad import Adagrad
from .base import EPSILON, RATE, Optimizer


@dataclass(frozen=True)
class RowAdagrad(Adagrad):
    """s <- s + mean(g g) of a row; w <- w - rate / (sqrt(s) + epsilon) g."""

    row_state = True
    cuda = 3

    def for_biases(self) -> Optimizer:
        """Return Adagrad."""
        return Adagrad(self.weight_decay, self.clip_norm, self.epsilon)

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return rate / (sqrt(s) + epsilon) g; the quotient, the same in a row, is computed once."""
        return h[RATE] / (np.sqrt(s) + h[EPSILON]) * g


OPTIMIZER = RowAdagrad
