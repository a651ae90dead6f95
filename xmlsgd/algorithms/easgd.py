"""Elastic averaging SGD: replicas and a center pull at each other.

Zhang, Choromanska, LeCun 2015 (arXiv 1412.6651), Algorithm 1: every tau updates

    x_i <- x_i - alpha (x_i - z);  z <- z + alpha * sum of (x_i - z)

Nobody is overwritten: replicas go on exploring around the center. In the paper, a learner takes its next gradient where
it stood before the pull; here, where the pull has put it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ..training.merging import Comm, ParameterSlice
from .base import Algorithm
from .rounds import UpdateRounds, Work

BETA = 0.9  # k * alpha of the paper's experiments


@dataclass
class EASGD(UpdateRounds, Algorithm):
    """Elastic averaging of k learners with alpha = 0.9 / k, which is below the bound of stability, 2 / (1 + k).

    sync_every : tau, updates of a round, >= 1; of the paper's 1, 4, 16 and 64 the first with which two workers
    have less than a twentieth of their time in merges. asynchronous : a learner and the center are merged when it has
    done its updates, without waiting for the others.
    """

    asynchronous: bool = False

    @classmethod
    def published(cls, batch: int = 128, learning_rate: float = 6e-3) -> EASGD:
        """Return the paper's asynchronous form, with rounds of 10 updates."""
        return cls(batch, learning_rate, sync_every=10, asynchronous=True)

    @property
    def overlaps(self) -> bool:
        """Return whether learners are merged one by one."""
        return self.asynchronous

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
        comm.merge(self.pull, work, ends_at_center=False)

    def pull(self, params: ParameterSlice) -> None:
        """Move each learner by alpha towards the center, and the center by all that the learners moved."""
        alpha, moved = np.float32(self.alpha), np.zeros_like(params.center)
        for x in params.replicas.values():
            elastic = alpha * (x - params.center)
            x -= elastic
            moved += elastic
        params.center += moved
