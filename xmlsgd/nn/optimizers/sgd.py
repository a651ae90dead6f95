"""Stochastic gradient descent: w <- w - rate g (Robbins and Monro 1951)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import RATE, Optimizer


@dataclass(frozen=True)
class SGD(Optimizer):
    """w <- w - rate g."""

    default_rate = 0.5
    cuda = 0

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return rate g."""
        return h[RATE] * g


OPTIMIZER = SGD
