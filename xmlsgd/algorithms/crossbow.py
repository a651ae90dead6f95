"""Crossbow: synchronous model averaging (SMA) of many learners with small batches, several a device.

Koliousis, Watcharapichat, Weidlich, Mai, Costa, Pietzuch 2019 (PVLDB 12(11), arXiv 1901.02244), Algorithm 1. In an
iteration every learner j takes a step and a correction towards the average model z, both from where it stood before:
w_j <- w_j - g_j - c_j with c_j = alpha (w_j - z); then z <- z + sum of c_j + mu (z - z_previous).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..merging import Part
from .base import Comm
from .combining import Work
from .easgd import EASGD
from .learner_tuning import LearnerTuner
from .outer import fading


@dataclass
class Crossbow(EASGD):
    """Elastic averaging at every iteration, with alpha = 1/k and momentum of the center.

    sync_every : 1 in the paper; more where the model is so large that merging would take longer than learning.
    learners : workers that are learners of one device; with more than 1 their number is tuned, from one up, by
    throughput (`learner_tuning.py`). A single learner has nothing to average and trains as plain SGD.
    """

    sync_every: int = 1
    center_momentum: float = 0.9
    learners: int = 1

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin with all learners, or with one a device if their number is to be found."""
        self.tuner = LearnerTuner(self.learners) if self.learners > 1 else None
        super().start(workers, n_rows)
        self._set_alpha()
        self.restarting = False

    def pull(self, k: int) -> float:
        """Return alpha for k learners."""
        return 1 / k

    def check(self, k: int) -> None:
        """Leave a learner alone unchecked: it does not pull."""
        if k > 1:
            super().check(k)

    def active(self, w: int) -> bool:
        """Return whether learner `w` takes part."""
        return self.tuner is None or w % self.learners < self.tuner.learners

    def goes_on(self, w: int) -> bool:
        """Return whether an active learner has updates left in this iteration."""
        return self.active(w) and super().goes_on(w)

    def restart(self) -> None:
        """Put every learner back to the average at the next meeting, as the paper does when the rate changes."""
        self.restarting = True

    def merge_all(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Correct learners and average; then see whether one learner more a device pays."""
        members = [w for w in work if self.active(w)]
        rows = sum(work[w].rows for w in members)
        if len(members) == 1:
            comm.merge(self.alone, members)
        else:
            comm.merge(self.sma, members, self.memory(), equal=False)
        if self.restarting:
            comm.merge(self.put_back, members)
            self.restarting = False
        if self.tuner and self.tuner.changed(comm.now(), rows):
            self._set_alpha()
            comm.merge(self.put_back, [w for w in self.size if self.active(w)])

    def memory(self) -> int:
        """Return the merges for which an untouched row still moves."""
        return fading(self.center_momentum)

    def _set_alpha(self) -> None:
        """Set the strength of the pull for the learners that take part."""
        k = sum(self.active(w) for w in self.size)
        if self.correction is None:
            self.alpha = self.pull(k)

    def alone(self, part: Part) -> None:
        """Take the one learner as the average."""
        (replica,) = part.replicas.values()
        part.center[:] = replica

    def sma(self, part: Part) -> None:
        """Apply corrections, taken from where learners stood before their last step if they meet at every one."""
        if self.sync_every > 1:
            self.elastic(part)
            return
        alpha, total = np.float32(self.alpha), np.zeros_like(part.center)
        for w, replica in part.replicas.items():
            correction = alpha * part.slot(f"w{w} - z")
            replica -= correction
            total += correction
        motion = part.slot("motion")
        motion *= np.float32(self.center_momentum)
        motion += total
        part.center += motion
        for w, replica in part.replicas.items():
            part.slot(f"w{w} - z")[:] = replica - part.center

    def put_back(self, part: Part) -> None:
        """Put learners back to the average and end its motion."""
        part.broadcast()
        part.slot("motion")[:] = 0
        for w in part.replicas:
            part.slot(f"w{w} - z")[:] = 0

    def notes(self) -> dict[str, object]:
        """Return alpha and the learners a device."""
        return {"alpha": self.alpha, "learners": self.tuner.learners if self.tuner else self.learners}
