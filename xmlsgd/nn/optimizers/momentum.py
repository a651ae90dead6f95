"""Heavy ball momentum (Polyak 1964): v <- momentum v + g; w <- w - rate v."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.validation import below_one
from .base import FIRST, RATE, Optimizer


@dataclass(frozen=True)
class Momentum(Optimizer):
    """v <- momentum v + g; w <- w - rate v; v is s."""

    momentum: float = below_one(0.9)

    slots = 1
    default_rate = 0.1
    cuda = 1

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write the momentum."""
        hyper[FIRST] = self.momentum

    @staticmethod
    def state(g: Any, square: Any, s: Any, t: Any, h: Any) -> tuple[Any, Any]:
        """Return the new velocity."""
        return h[FIRST] * s + g, t

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return rate v."""
        return h[RATE] * s


OPTIMIZER = Momentum
