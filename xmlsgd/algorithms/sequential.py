"""Mini-batch stochastic gradient descent by one worker: the baseline of all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..training.messages import Sharing
from .base import Algorithm


@dataclass
class Sequential(Algorithm):
    """Every batch has `batch` rows and the same `learning_rate`; of several workers the first one alive trains.

    The losses of a GPU that trains alone are read four steps late (`PENDING_STEPS`), so that no step waits for the one
    before. They are the same to the bit. A loss that is not finite ends the run as many steps late, or at the end of
    the epoch.
    """

    sharing = Sharing.IN_PLACE

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Note the workers."""
        self.alive = set(workers)

    def batch_size(self, w: int, now: float) -> int:
        """Return 0 for all but one worker."""
        return self.batch if w == min(self.alive) else 0

    def left(self, w: int) -> None:
        """Let the next worker take over."""
        self.alive.discard(w)

    def joined(self, w: int) -> None:
        """Note that there is one more."""
        self.alive.add(w)
