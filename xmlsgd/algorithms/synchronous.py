"""Synchronous SGD: a batch on every worker, one common update, again.

With plain SGD the mean of the replicas, each one step from the common model and weighed by its rows, is the step of the
summed gradient of all batches. With a stateful optimizer each worker keeps its own state, and the steps are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..training.merging import Comm
from .base import Algorithm
from .combiners import by_rows, move_to_mean
from .rounds import Rounds, Work


@dataclass
class Synchronous(Rounds, Algorithm):
    """Every worker trains one batch; the mean of the replicas, weighed by rows, is where all begin the next.

    Parameters
    ----------
    batch : int
        Rows a worker: a step is of `workers` times as many.
    learning_rate : float
        That of the step.
    """

    def open_rows(self, w: int) -> float:
        """Return the rows of the one batch."""
        return 0 if self.given[w] else self.batch

    def merge_replicas(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Take the mean, weighed by rows, as the common model."""
        self.merge_into_center(comm, work, move_to_mean(by_rows(work)))
