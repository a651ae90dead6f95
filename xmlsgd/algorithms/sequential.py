"""Mini-batch stochastic gradient descent by one worker, the baseline of all other algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..training.messages import Sharing
from .base import Algorithm


@dataclass
class Sequential(Algorithm):
    """Each batch has `batch` rows and the same `learning_rate`. Of several workers, the first one alive trains.

    The losses of a GPU are read four spans late (`PENDING_SPANS`), so that no span waits for the last one. Therefore a
    loss that is not finite ends the run only four spans later, or at the end of the epoch. The losses are the same.
    """

    sharing = Sharing.IN_PLACE

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Note the workers."""
        self.alive = set(workers)

    def batch_size(self, w: int, now: float) -> int:
        """Return `batch` for the first worker alive, 0 for the others."""
        return self.batch if w == min(self.alive) else 0

    def worker_left(self, w: int) -> None:
        """Let the next worker take over."""
        self.alive.discard(w)

    def worker_joined(self, w: int) -> None:
        """Note that there is one more worker."""
        self.alive.add(w)
