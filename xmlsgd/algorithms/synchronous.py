"""Synchronous SGD: a batch on every worker, one common update, again.

With plain SGD the mean of the replicas, each one step from the common model and weighed by its rows, is the step of the
summed gradient of all batches. With a stateful optimizer each worker keeps its own state, and the steps are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .base import Comm
from .combining import Work, by_rows
from .rounds import Rounds


@dataclass
class Synchronous(Rounds):
    """batch : rows a worker, so that a step is of `workers` times as many; `learning_rate` is that of that step."""

    def open_rows(self, w: int) -> float:
        """Return the rows of the one batch."""
        return 0 if self.given[w] else self.batch

    def merge_all(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Take the mean, weighed by rows, as the common model."""
        self.average(comm, work, by_rows(work))
