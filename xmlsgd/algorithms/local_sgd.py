"""Local SGD: every worker makes some steps of its own, then an outer optimizer moves the common model by their mean.

Stich 2019; with `HeavyBall` it is BMUF (Chen and Huo 2016), with `Nesterov` DiLoCo (Douillard et al. 2023). Dynamic
local updates give a slow worker fewer steps instead of making fast ones wait (Liu et al. 2024, arXiv 2401.09135).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..data.validation import at_least, check_choice, check_instance, ranged
from ..training.merging import Comm
from .base import Algorithm
from .combiners import COMBINERS, by_rows
from .outer import MOST, Nesterov, Outer, block_momentum
from .rounds import Rounds, Work, moving_average

ADASUM_MOMENTUM = 0.5  # AdaSum moves further than a mean; 0.5 beat 0 and 0.75 (docs/decisions/workers.md)


@dataclass
class LocalSGD(Rounds, Algorithm):
    """Workers train replicas for some steps; then an outer optimizer moves the common model by what they combine to.

    Parameters
    ----------
    batch, learning_rate
        See `Algorithm`.
    steps : int
        Updates of a worker between merges, >= 1; at first, if `merging` is to be kept.
    dynamic : bool
        Whether the steps of a round go to whoever is free, so that slow workers make fewer, and who would only wait for
        a slower one makes more meanwhile.
    outer : Outer or None
        What moves the common model; None for block momentum of 1 - 1/n, at most 0.8, at most 0.5 with AdaSum.
    combine : str
        How replicas are combined (`combiners.py`); a mean weighs them by their rows.
    straggler_timeout : float
        Times its usual duration that a batch may take before the others merge without its worker, > 1; math.inf waits
        for everybody.
    merging : float
        Share of the time, in (0, 1], that merges may take; while they take more, rounds get longer, twice as long or
        more.
    """

    steps: int = at_least(4, 1)
    dynamic: bool = True
    outer: Outer | None = None
    combine: str = "adasum"
    straggler_timeout: float = ranged(2.0, "above 1", lambda value: value > 1)
    merging: float = ranged(0.03, "in (0, 1]", lambda value: 0 < value <= 1)

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges and unknown names."""
        super().__post_init__()
        check_instance("outer", self.outer, Outer, "Nesterov()")
        check_choice("combine", self.combine, COMBINERS)

    @classmethod
    def published(cls, batch: int = 256, learning_rate: float = 6e-3) -> LocalSGD:
        """Return DiLoCo: 500 steps, the plain mean, Nesterov momentum 0.9 at learning rate 0.7, waiting for all."""
        return cls(
            batch, learning_rate, steps=500, dynamic=False, outer=Nesterov(), combine="mean",
            straggler_timeout=math.inf, merging=1.0,
        )  # fmt: skip

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin with the shortest rounds."""
        super().start(workers, n_rows)
        self.steps_now = self.steps
        self.merged_at: float | None = None  # when the last merge ended
        self.share: float | None = None  # of the time in merges, of late

    def outer_of(self, n_workers: int) -> Outer:
        """Return the outer optimizer of so many workers."""
        return self.outer or block_momentum(n_workers, ADASUM_MOMENTUM if self.combine == "adasum" else MOST)

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the vectors of the outer optimizer; a worker that has been a straggler has one more."""
        return len(self.outer_of(n_workers).state_names)

    def open_rows(self, w: int) -> float:
        """Return the rows of the steps that are left."""
        return self.rest_of_round(self.steps_now * self.batch * len(self.given), w)

    def goes_on(self, w: int, now: float) -> bool:
        """Return whether steps of the round are left, or the worker would only wait for a slower one."""
        return super().goes_on(w, now) or (self.dynamic and self.throughput.has_time(w, self.size[w], now))

    def merge_replicas(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Combine the replicas and move the common model."""
        begun, outer = comm.now(), self.outer_of(len(self.size))  # of all workers, also if some are left out
        weights, combine = by_rows(work), COMBINERS[self.combine]
        self.merge_into_center(comm, work, lambda each: outer.apply(each, combine(each, weights)), outer.fade_merges)
        self.lengthen(begun, comm.now(), sum(done.rows for done in work.values()))

    @property
    def round_rows(self) -> int:
        """Return the rows of a whole round."""
        return self.steps_now * self.batch * len(self.size)

    def lengthen(self, begun: float, ended: float, rows: int) -> None:
        """Double the rounds, up to an epoch, until merges take no more of the time than they may.

        The average of recent merges has to take too much first. The first merge, which allocates, does not count, nor
        does that of a round of fewer `rows`, which the end of an epoch cut short.
        """
        if self.merged_at is not None and ended > self.merged_at and rows >= self.round_rows:
            merging, work = ended - begun, begun - self.merged_at
            share = moving_average(self.share, merging / (merging + work))
            while share > self.merging and self.round_rows < self.n_rows:
                self.steps_now, work = 2 * self.steps_now, 2 * work
                share = min(share, merging / (merging + work))
            self.share = share
        self.merged_at = ended

    def notes(self) -> dict[str, object]:
        """Return the steps of a round."""
        return {"steps": self.steps_now}
