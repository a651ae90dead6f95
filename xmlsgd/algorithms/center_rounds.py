"""Rounds that end with a pull between learners and the center, as in elastic averaging and Crossbow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..data.validation import at_least, below_one
from ..errors import warn
from ..training.merging import ParameterSlice
from .rounds import Rounds


@dataclass
class CenterRounds(Rounds):
    """Rounds of `sync_every` updates of each learner, which end with a pull between learners and the center.

    A class of algorithms derives from it before `Algorithm`, and defines `alpha` and `merge_replicas`.
    """

    sync_every: int = at_least(16, 1)
    center_momentum: float = below_one(0.0)

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin to count rounds; warn where one is longer than an epoch."""
        super().start(workers, n_rows)
        self.merges, rows = 0, self.sync_every * self.batch * len(workers)
        if self.sync_every > 1 and rows > n_rows:
            warn(
                f"sync_every = {self.sync_every} takes {rows} rows, more than an epoch of {n_rows}: rounds end with "
                "the epoch"
            )

    @property
    @abstractmethod
    def alpha(self) -> float:
        """Return the strength of the pull for the learners that are there."""

    def open_rows(self, w: int) -> float:
        """Return the rows of the updates that a learner has left in the round."""
        return self.sync_every * self.batch - self.given[w]

    def notes(self) -> dict[str, object]:
        """Return the pull, the momentum of the center and the number of merges."""
        return {"alpha": self.alpha, "center_momentum": self.center_momentum, "merges": self.merges}


def pull_together(params: ParameterSlice, alpha: float, center_momentum: float) -> None:
    """Move each learner by alpha towards the center, and the center by all that the learners moved."""
    total = np.zeros_like(params.center)
    for replica in params.replicas.values():
        pull(replica, params.center, np.float32(alpha), total)
    move_center(params, total, center_momentum)


def pull(replica: np.ndarray, center: np.ndarray, alpha: np.floating, total: np.ndarray) -> None:
    """Move a learner by alpha towards the center; add what it moved to the total."""
    correction = alpha * (replica - center)
    replica -= correction
    total += correction


def move_center(params: ParameterSlice, total: np.ndarray, center_momentum: float) -> None:
    """Move the center by the sum of the corrections and, if it has momentum, by its last motion."""
    if center_momentum:
        motion = params.state("motion")
        motion *= np.float32(center_momentum)
        motion += total
        total = motion
    params.center += total
