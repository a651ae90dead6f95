"""Crossbow: synchronous model averaging (SMA) of many learners with small batches, several a device.

Koliousis, Watcharapichat, Weidlich, Mai, Costa, Pietzuch 2019 (PVLDB 12(11), arXiv 1901.02244), Algorithm 1. In an
iteration every learner j takes a step and a correction towards the average model z, both from where it stood before:
w_j <- w_j - g_j - c_j with c_j = alpha (w_j - z); then z <- z + sum of c_j + mu (z - z_previous).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from ..training.merging import ParameterSlice
from .base import Comm
from .combining import Work
from .easgd import EASGD
from .learner_tuning import LearnerTuner
from .outer import fading


@dataclass
class Crossbow(EASGD):
    """Elastic averaging with alpha = 1/k and momentum of the center; at every iteration with `sync_every=1`.

    sync_every : updates between averages. 1 in the paper; with the wide output layers of here that takes a quarter of
    the time, with 16 a twentieth.
    learners : workers that are learners of one device; with more than 1 their number is tuned, from one up, by
    throughput (`learner_tuning.py`). A single learner has nothing to average and trains as plain SGD.

    The paper also restarts all learners from the average where the learning rate falls in a step; no schedule here has
    such steps.
    """

    sync_every: int = 16
    center_momentum: float = 0.9
    learners: int = 1

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges, and for learners that meet one by one."""
        super().__post_init__()
        if self.asynchronous:
            raise DataError("Crossbow's learners meet all at once: asynchronous must be False; EASGD has both")
        if self.learners < 1:
            raise DataError(f"learners must be at least 1, got {self.learners}")

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the motion of the center and, where corrections are from before the step, a difference a learner."""
        return super().merge_state_vectors(n_workers) + (n_workers if self.sync_every == 1 else 0)

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin with all learners, or with one a device if their number is to be found."""
        super().start(workers, n_rows)
        self.tuner = LearnerTuner(self.learners) if self.learners > 1 else None
        self.learning = self.chosen()

    @property
    def learners_now(self) -> int:
        """Return k, the learners that take part."""
        return len(self.learning)

    def pull(self, k: int) -> float:
        """Return alpha for k learners."""
        return 1 / k

    def check(self, k: int) -> None:
        """Leave a learner alone unchecked: it does not pull."""
        if k > 1:
            super().check(k)

    def chosen(self) -> set[int]:
        """Return the learners that shall take part: the first of each device, as many as the tuner says."""
        most = self.tuner.learners if self.tuner else self.learners
        places = Counter[int]()  # taken, by device
        chosen = set()
        for w in sorted(self.size):
            places[w // self.learners] += 1
            if places[w // self.learners] <= most:
                chosen.add(w)
        return chosen

    def open_rows(self, w: int) -> float:
        """Return the rows that a learner that takes part has left in this iteration."""
        return super().open_rows(w) if w in self.learning else 0

    def left(self, w: int) -> None:
        """Forget a learner; another of its device may take its place at the next meeting."""
        super().left(w)
        self.learning.discard(w)

    def joined(self, w: int) -> None:
        """Take a new learner in, if its device has room for it."""
        super().joined(w)
        self.learning |= self.chosen() & {w}

    def merge_due(self, busy: Collection[int]) -> Collection[int]:
        """Return all learners when the last is done, or when all that took part are gone and others have to begin."""
        return super().merge_due(busy) if self.learning else list(self.size)

    def merge_all(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Correct learners and average; then see whether one learner more a device pays."""
        self.merges += 1
        rows = sum(work[w].rows for w in self.learning)
        if len(self.learning) == 1:
            comm.merge(self.alone, self.learning)
        elif self.learning:
            comm.merge(self.sma, self.learning, fading(self.center_momentum), equal=False)
        if self.tuner:
            self.tuner.changed(comm.now(), rows)
        chosen = self.chosen()
        if chosen != self.learning:
            comm.merge(self.put_back, chosen)
        self.learning = chosen

    def alone(self, params: ParameterSlice) -> None:
        """Take the one learner as the average, which has no motion of its own then."""
        (replica,) = params.replicas.values()
        params.center[:] = replica
        self.put_back(params)

    def sma(self, params: ParameterSlice) -> None:
        """Apply corrections, taken from where learners stood before their last step if they meet at every one."""
        if self.sync_every > 1:
            self.elastic(params)
            return
        alpha, total = np.float32(self.alpha), np.zeros_like(params.center)
        for w, replica in params.replicas.items():
            correction = alpha * params.state("w - z", w)
            replica -= correction
            total += correction
        self.move_center(params, total)
        for w, replica in params.replicas.items():
            params.state("w - z", w)[:] = replica - params.center

    def put_back(self, params: ParameterSlice) -> None:
        """Put learners back to the average and end its motion."""
        params.broadcast()
        if self.center_momentum:
            params.state("motion")[:] = 0
        for w in params.replicas if self.sync_every == 1 else ():
            params.state("w - z", w)[:] = 0

    def notes(self) -> dict[str, object]:
        """Return what the elastic average notes, and the learners a device."""
        return {**super().notes(), "learners": self.tuner.learners if self.tuner else self.learners}
