"""Synchronous SGD: each worker computes a step on its own batch, and the model moves by the mean of the steps.

With plain SGD, the mean of the replicas, weighed by rows, equals one step by the gradient of all batches together. With
other optimizers, each worker keeps an optimizer state of its own, and the steps are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..training.merging import Comm
from .combiners import by_rows, move_to_mean
from .rounds import LocalWork, Rounds


@dataclass
class Synchronous(Rounds):
    """Each worker trains one batch; then the mean of the replicas, weighed by rows, becomes the model of all.

    Parameters
    ----------
    batch : int
        Rows per worker; a step has `batch` times the number of workers.
    learning_rate : float
        Learning rate of a step.
    """

    def open_rows(self, w: int) -> float:
        """Return the rows of one batch, or 0 if the worker was given it, also if it was a short one."""
        return 0 if self.given[w] else self.batch

    def merge_replicas(self, comm: Comm, work: Mapping[int, LocalWork]) -> None:
        """Set the center to the mean of the replicas, weighed by rows."""
        self.merge_into_center(comm, work, move_to_mean(by_rows(work)))
