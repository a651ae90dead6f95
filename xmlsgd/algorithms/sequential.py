"""Mini-batch stochastic gradient descent by one worker, batch after batch: what the others are compared with."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import Sharing
from .base import Algorithm


@dataclass
class Sequential(Algorithm):
    """Every batch has `batch` rows and the same `rate`; workers, if several, share the model."""

    @property
    def sharing(self) -> Sharing:
        """Return that there is one model."""
        return Sharing.IN_PLACE
