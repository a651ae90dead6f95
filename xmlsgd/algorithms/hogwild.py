"""Hogwild: workers update one shared model without locks.

Niu, Recht, Re, Wright 2011 (Hogwild!). Safe where conflicts are rare; here they gather on output biases, frequent
labels and frequent features, so that the learning rate has to fall as workers join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..training.messages import Report, Sharing
from .base import Algorithm
from .rounds import tapered

SPAN = 1024  # rows of a message: with updates of one row, a message takes below 2 % of the time of its rows
MESSAGES = 32  # a worker and epoch at least, so that all are done at about the same time


@dataclass
class Hogwild(Algorithm):
    """Every worker takes the next batch when it is free.

    batch : rows of an update; 1 in the paper. copies : whether each worker steps on a copy of the model and adds what
    changed, in place of writing the model itself: slower, but a death leaves no part of a step in the model.
    """

    copies: bool = False

    @classmethod
    def published(cls, batch: int = 1, learning_rate: float = 6e-3) -> Hogwild:
        """Return the paper's form: updates of one row, written in place."""
        return cls(batch, learning_rate)

    @property
    def sharing(self) -> Sharing:
        """Return that there is one model."""
        return Sharing.DELTA if self.copies else Sharing.IN_PLACE

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin to count updates."""
        self.done: dict[int, float] = dict.fromkeys(workers, 0)
        self.span = min(SPAN, n_rows // (MESSAGES * max(len(workers), 1)))

    def updates(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return as many updates as fill a message, one where it pulls and pushes the model."""
        if not in_place:
            return 1
        return max(tapered(self.span, rows_left, len(self.done)) // self.batch, 1)

    def finished(self, report: Report) -> None:
        """Count the updates."""
        self.done[report.worker] += report.updates

    def left(self, w: int) -> None:
        """Count the updates of a worker that is gone no more."""
        del self.done[w]

    def joined(self, w: int) -> None:
        """Let a new worker begin with the slowest."""
        self.done[w] = min(self.done.values(), default=0)
