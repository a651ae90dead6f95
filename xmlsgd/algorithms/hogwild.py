"""Hogwild: workers update one shared model without locks.

Niu, Recht, Re, Wright 2011 (Hogwild!). This is safe if conflicts are rare. Here they are frequent on output biases,
frequent labels and frequent features, so that more workers need a lower learning rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..training.messages import Report, Sharing
from .base import Algorithm
from .rounds import tapered

ROWS_PER_SPAN = 1024  # at most: with updates of one row, the messages of a span take below 2 % of the time
SPANS_PER_WORKER = 32  # at least, in an epoch: so all workers finish it at about the same time


@dataclass
class Hogwild(Algorithm):
    """Each worker takes the next batch when it is free.

    batch : rows of an update; 1 in the paper. copies : whether each worker trains a copy of the model and adds the
    difference, instead of writing the model itself. This is slower, but a worker that dies leaves no part of a span in
    the model.
    """

    copies: bool = False

    @classmethod
    def published(cls, batch: int = 1, learning_rate: float = 6e-3) -> Hogwild:
        """Return the paper's setting, written in place; its updates are of one row, unless `batch` is passed."""
        return cls(batch, learning_rate)

    @property
    def sharing(self) -> Sharing:
        """Return how workers use the one model: in place, or by copies."""
        return Sharing.DELTA if self.copies else Sharing.IN_PLACE

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Start counting updates."""
        self.update_counts: dict[int, float] = dict.fromkeys(workers, 0)
        self.span = min(ROWS_PER_SPAN, n_rows // (SPANS_PER_WORKER * max(len(workers), 1)))

    def updates_per_span(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return as many updates as fill a span; 1 if each span pulls and pushes the model."""
        if not in_place:
            return 1
        return max(tapered(self.span, rows_left, len(self.update_counts)) // self.batch, 1)

    def finished(self, report: Report) -> None:
        """Count the updates."""
        self.update_counts[report.worker] += report.updates

    def worker_left(self, w: int) -> None:
        """Forget the updates of a worker that has left."""
        del self.update_counts[w]

    def worker_joined(self, w: int) -> None:
        """Start the count of a new worker at that of the slowest."""
        self.update_counts[w] = min(self.update_counts.values(), default=0)
