"""Mini-batch stochastic gradient descent by one worker, batch after batch: what the others are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import Algorithm


@dataclass
class Sequential(Algorithm):
    """Every batch has `batch` rows and the same `rate`; workers, if several, share the model."""

    batch: int = 256
    rate: float = 6e-3
    shared: ClassVar[bool] = True

    def batch_size(self, w: int) -> int:
        """Return the fixed size."""
        return self.batch

    def learning_rate(self, w: int, rows: int) -> float:
        """Return the fixed rate."""
        return self.rate
