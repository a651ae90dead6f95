"""Elastic averaging SGD: replicas and a center pull at each other, without the plain mean of `elastic.py`.

Zhang, Choromanska, LeCun 2015 (arXiv 1412.6651), Algorithm 1: every tau updates

    x_i <- x_i - alpha (x_i - z);  z <- z + alpha * sum of (x_i - z)

Replicas are not overwritten by the center, but explore around it. In the paper, a learner computes its next gradient at
the model before the pull; here, at the model after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ..data.validation import at_least
from ..training.merging import Comm, MergeRule, ParameterSlice
from .rounds import LocalWork, Rounds

BETA = 0.9  # k * alpha of the paper's experiments


@dataclass
class EASGD(Rounds):
    """Elastic averaging of k learners with alpha = 0.9 / k, which is below the bound of stability, 2 / (1 + k).

    sync_every : tau, updates of a learner between merges, >= 1. The paper tried 1, 4, 16 and 64; 16 is the first with
    which merges take two workers less than a twentieth of the time. asynchronous : whether each learner is merged with
    the center as soon as it has done its updates, without waiting for the others.
    """

    sync_every: int = at_least(16, 1)
    asynchronous: bool = False

    @classmethod
    def published(cls, batch: int = 128, learning_rate: float = 6e-3) -> EASGD:
        """Return the paper's asynchronous variant, with rounds of 10 updates."""
        return cls(batch, learning_rate, sync_every=10, asynchronous=True)

    @property
    def pauses_for_checkpoint(self) -> bool:
        """Return whether learners are merged one by one."""
        return self.asynchronous

    @property
    def alpha(self) -> float:
        """Return 0.9 divided by the current number of learners."""
        return BETA / max(len(self.size), 1)

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return all learners when the last one is done; if asynchronous, one that is done."""
        if not self.asynchronous:
            return super().merge_due(busy, now)
        return [w for w in self.size if w not in busy and self.given[w] and not self.goes_on(w, now)][:1]

    def merge_replicas(self, comm: Comm, work: Mapping[int, LocalWork]) -> None:
        """Move the learners and the center towards each other."""
        comm.merge(MergeRule(self.pull, ends_at_center=False), work)

    def pull(self, params: ParameterSlice) -> None:
        """Move each learner towards the center by the share alpha, and the center by the sum of these moves."""
        alpha, moved = np.float32(self.alpha), np.zeros_like(params.center)
        for x in params.replicas.values():
            elastic = alpha * (x - params.center)
            x -= elastic
            moved += elastic
        params.center += moved
