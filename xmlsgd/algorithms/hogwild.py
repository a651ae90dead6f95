"""Hogwild: workers update one shared model without locks.

Niu, Recht, Re, Wright 2011 (Hogwild!). Safe where conflicts are rare; here they gather on output biases, frequent
labels and frequent features, so that the learning rate has to fall as workers join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..data.validation import check_instance
from ..training.messages import Report, Sharing
from .base import Algorithm
from .rounds import tapered
from .staleness import Staleness

SPAN = 1024  # rows of a message: with updates of one row, a message takes below 2 % of the time of its rows
MESSAGES = 32  # a worker and epoch at least, so that all are done at about the same time


@dataclass
class Hogwild(Algorithm):
    """Every worker takes the next batch when it is free.

    batch : rows of an update; 1 in the paper. staleness : what is done about old updates; None lets workers write in
    place, a rule makes them send differences, which can be weighed.
    """

    staleness: Staleness | None = None

    def __post_init__(self) -> None:
        """Raise `DataError` for what is no number and no rule."""
        super().__post_init__()
        check_instance("staleness", self.staleness, Staleness, "Dropped()")

    @classmethod
    def published(cls, batch: int = 1, learning_rate: float = 6e-3) -> Hogwild:
        """Return the paper's form: updates of one row, written in place."""
        return cls(batch, learning_rate)

    @property
    def sharing(self) -> Sharing:
        """Return that there is one model."""
        return Sharing.DELTA if self.staleness else Sharing.IN_PLACE

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin to count updates."""
        self.done: dict[int, float] = dict.fromkeys(workers, 0)
        self.span = min(SPAN, n_rows // (MESSAGES * max(len(workers), 1)))

    def batch_size(self, w: int, now: float) -> int:
        """Return the fixed size, 0 for a worker that has to wait for slower ones."""
        return self.batch if self.may_start(w) else 0

    def may_start(self, w: int) -> bool:
        """Return whether the staleness rule lets worker `w` go on."""
        return self.staleness is None or self.staleness.may_start(w, self.done)

    def updates(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return as many updates as fill a message, one where it pulls and pushes the model."""
        if not in_place:
            return 1
        return max(tapered(self.span, rows_left, len(self.done)) // self.batch, 1)

    def finished(self, report: Report) -> None:
        """Count the updates."""
        self.done[report.worker] += report.updates

    def weight(self, report: Report) -> float:
        """Return the weight that the staleness rule gives."""
        return 1.0 if self.staleness is None else self.staleness.weight(report.staleness)

    def left(self, w: int) -> None:
        """Wait no longer for a worker that is gone."""
        del self.done[w]

    def joined(self, w: int) -> None:
        """Let a new worker begin with the slowest."""
        self.done[w] = min(self.done.values(), default=0)
