"""Crossbow: synchronous model averaging (SMA) of many learners with small batches, several a device.

Koliousis, Watcharapichat, Weidlich, Mai, Costa, Pietzuch 2019 (PVLDB 12(11), arXiv 1901.02244), Algorithm 1. In an
iteration every learner j takes a step and a correction towards the average model z, both from where it stood before:

    c_j <- alpha (w_j - z);  w_j <- w_j - g_j - c_j;  z <- z + sum of c_j + mu (z - z_previous)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..data.validation import below_one
from ..training.merging import Comm, ParameterSlice
from ..training.rounds import Work
from .base import Algorithm
from .easgd import Meetings, move_center, pull_together
from .outer import merges_to_fade


@dataclass
class Crossbow(Meetings, Algorithm):
    """SMA of k learners with alpha = 1 / k. One learner alone has nothing to average and trains as plain SGD.

    sync_every : tau, updates between averages, >= 1. 1 in the paper; with the wide output layers of here that takes a
    quarter of the time, with 16 a twentieth. center_momentum : mu, of the average, in [0, 1).

    The paper also restarts all learners from the average where the learning rate falls in a step; no schedule here has
    such steps.
    """

    center_momentum: float = below_one(0.9)

    @classmethod
    def published(cls, batch: int = 16, learning_rate: float = 6e-3) -> Crossbow:
        """Return the paper's form, which averages at every iteration."""
        return cls(batch, learning_rate, sync_every=1)

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the motion of the average and, where corrections are from before the step, w_j - z of each learner."""
        return int(self.center_momentum > 0) + (n_workers if self.sync_every == 1 else 0)

    @property
    def alpha(self) -> float:
        """Return the strength of the pull for the learners that are there."""
        return 1 / max(len(self.size), 1)

    def merge_replicas(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Correct learners and average."""
        self.merges += 1
        if len(work) == 1:
            comm.merge(self.alone, work)
        else:
            comm.merge(self.sma, work, merges_to_fade(self.center_momentum), equal=False)

    def sma(self, params: ParameterSlice) -> None:
        """Apply corrections, taken from where learners stood before their last step if they meet at every one."""
        if self.sync_every > 1:
            pull_together(params, self.alpha, self.center_momentum)
            return
        total = np.zeros_like(params.center)
        for w, replica in params.replicas.items():
            c = np.float32(self.alpha) * params.state("w - z", w)
            replica -= c
            total += c
        move_center(params, total, self.center_momentum)
        for w, replica in params.replicas.items():
            params.state("w - z", w)[:] = replica - params.center

    def alone(self, params: ParameterSlice) -> None:
        """Take the one learner as the average, which has no motion then."""
        (replica,) = params.replicas.values()
        params.center[:] = replica
        if self.center_momentum:
            params.state("motion")[:] = 0
        for w in params.replicas if self.sync_every == 1 else ():
            params.state("w - z", w)[:] = 0
