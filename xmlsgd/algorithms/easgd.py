"""Elastic averaging SGD: replicas and a center pull at each other.

Zhang, Choromanska, LeCun 2015 (arXiv 1412.6651): every tau updates x_i <- x_i - alpha (x_i - z) and
z <- z + alpha * sum of (x_i - z). Nobody is overwritten: replicas go on exploring around the center.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..data.validation import at_least, below_one
from ..training.merging import Comm, ParameterSlice
from ..training.rounds import Rounds, Work
from .base import Algorithm
from .outer import merges_to_fade

BETA = 0.9  # k * alpha of the paper's experiments


@dataclass
class Meetings(Rounds):
    """Rounds of `sync_every` updates of each learner, and then a meeting with the center.

    A class of algorithms derives from it before `Algorithm`, and defines `alpha` and `merge_replicas`.
    """

    sync_every: int = at_least(16, 1)
    center_momentum: float = below_one(0.0)

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin to count meetings; warn where learners meet less than once an epoch."""
        super().start(workers, n_rows)
        self.merges, rows = 0, self.sync_every * self.batch * len(workers)
        if self.sync_every > 1 and rows > n_rows:
            warnings.warn(
                f"sync_every = {self.sync_every} takes {rows} rows, more than an epoch of {n_rows}: learners meet at "
                "its end only",
                stacklevel=2,
            )

    @property
    @abstractmethod
    def alpha(self) -> float:
        """Return the strength of the pull for the learners that are there."""

    def open_rows(self, w: int) -> float:
        """Return the rows of the updates that a learner has left before it meets the center."""
        return self.sync_every * self.batch - self.given[w]

    def notes(self) -> dict[str, object]:
        """Return the pull, the momentum of the center and how often learners have met."""
        return {"alpha": self.alpha, "center_momentum": self.center_momentum, "merges": self.merges}


@dataclass
class EASGD(Meetings, Algorithm):
    """Elastic averaging of k learners with alpha = 0.9 / k, which is below the bound of stability, 2 / (1 + k).

    sync_every : tau, updates between meetings, >= 1; of the paper's 1, 4, 16 and 64 the first with which two workers
    have less than a twentieth of their time in merges. center_momentum : mu, of the center, in [0, 1). asynchronous :
    a learner meets the center alone when it has done its updates, instead of waiting for all.
    """

    asynchronous: bool = False

    @classmethod
    def published(cls, batch: int = 128, learning_rate: float = 6e-3) -> EASGD:
        """Return the paper's asynchronous form, which meets every 10 updates."""
        return cls(batch, learning_rate, sync_every=10, asynchronous=True)

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the motion of the center, if it has momentum."""
        return int(self.center_momentum > 0)

    @property
    def alpha(self) -> float:
        """Return 0.9 over the number of learners that are there."""
        return BETA / max(len(self.size), 1)

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return all learners when the last is done, or one by one."""
        if not self.asynchronous:
            return super().merge_due(busy, now)
        return [w for w in self.size if w not in busy and self.given[w] and not self.goes_on(w, now)][:1]

    def merge_replicas(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Let the learners and the center pull at each other."""
        self.merges += 1

        def rule(params: ParameterSlice) -> None:
            pull_together(params, self.alpha, self.center_momentum)

        comm.merge(rule, work, merges_to_fade(self.center_momentum), equal=False)


def pull_together(params: ParameterSlice, alpha: float, center_momentum: float) -> None:
    """Move each learner by alpha towards the center, and the center by all that the learners moved."""
    total = np.zeros_like(params.center)
    for replica in params.replicas.values():
        correction = np.float32(alpha) * (replica - params.center)
        replica -= correction
        total += correction
    move_center(params, total, center_momentum)


def move_center(params: ParameterSlice, total: np.ndarray, center_momentum: float) -> None:
    """Move the center by the sum of the corrections and, if it has momentum, by its last motion."""
    if center_momentum:
        motion = params.state("motion")
        motion *= np.float32(center_momentum)
        motion += total
        total = motion
    params.center += total
