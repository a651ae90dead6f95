"""Row-wise RMSprop: one second moment per row, of the mean of g g, 1/H of RMSprop's state; biases have their own."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from .base import Optimizer
from .rmsprop import RMSprop

_rmsprop = functools.cache(RMSprop)  # checks its numbers, and each layer asks for it in each step


@dataclass(frozen=True)
class RowRMSprop(RMSprop):
    """RMSprop in which v <- beta2 v + (1 - beta2) mean(g g) of a row."""

    row_state = True
    cuda = 3

    def for_biases(self) -> Optimizer:
        """Return RMSprop."""
        return _rmsprop(self.weight_decay, self.clip_norm, self.beta2, self.epsilon, self.output_epsilon)


OPTIMIZER = RowRMSprop
