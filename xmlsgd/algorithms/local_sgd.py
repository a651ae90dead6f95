"""Local SGD: each worker makes some steps on its replica, then an outer optimizer moves the center by their mean.

Stich 2019; with `HeavyBall` it is BMUF (Chen and Huo 2016), with `Nesterov` DiLoCo (Douillard et al. 2023). Dynamic
local updates give a slow worker fewer steps, so that fast workers need not wait (Liu et al. 2024, arXiv 2401.09135).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..data.validation import at_least, check_choice, check_instance, ranged
from ..errors import DataError, shorten
from ..training.merging import Comm, ParameterSlice
from .combiners import COMBINERS, by_rows, combined
from .outer import MOST_MOMENTUM, Nesterov, Outer, block_momentum
from .rounds import LEAST_MERGES, LocalWork, Rounds, moving_average

MOST_MERGING = 0.3  # share of the time that the least merges of an epoch may take
ADASUM_MOMENTUM = 0.5  # AdaSum moves further than a mean; 0.5 was better than 0 and 0.75 (docs/decisions/workers.md)


@dataclass
class LocalSGD(Rounds):
    """Workers train replicas for some steps; then these are combined, and an outer optimizer moves the center.

    Parameters
    ----------
    batch, learning_rate
        See `Algorithm`.
    steps : int
        Updates of a worker between merges, >= 1; more later if merges take too long (`merging`).
    dynamic : bool
        Whether free workers take the next steps of a round, so that slow workers make fewer. A worker that would have
        to wait for a slower one makes more steps in the meantime.
    outer : Outer or None
        Optimizer that moves the center; None for block momentum 1 - 1/n, at most 0.8, at most 0.5 with AdaSum.
    combine : str
        How replicas are combined (`combiners.py`); a mean weighs them by their rows.
    straggler_timeout : float
        A span that takes longer than this multiple of its usual duration makes its worker a straggler, without which
        the others merge, > 1; math.inf waits for all workers.
    merging : float
        Share of the time that merges may take, in (0, 1]. If they take more, rounds become at least twice as long, but
        an epoch keeps four merges unless these take more than 0.3.
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
        """Begin with rounds of `steps` steps."""
        super().start(workers, n_rows)
        self.sync_every = self.steps  # grows (`lengthen`)
        self.merged_at: float | None = None  # when the last merge ended
        self.share: float | None = None  # share of the time that merges take, a moving average

    def outer_of(self, n_workers: int) -> Outer:
        """Return the outer optimizer for `n_workers` workers."""
        return self.outer or block_momentum(n_workers, ADASUM_MOMENTUM if self.combine == "adasum" else MOST_MOMENTUM)

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the number of vectors of the outer optimizer; each worker that was a straggler needs one more."""
        return self.outer_of(n_workers).n_states

    def goes_on(self, w: int, now: float) -> bool:
        """Return whether steps of the round are left, or the worker has time for one before a slower one is done."""
        return super().goes_on(w, now) or (self.dynamic and self.throughput.has_time(w, self.size[w], now))

    def merge_replicas(self, comm: Comm, work: Mapping[int, LocalWork]) -> None:
        """Combine the replicas and move the center."""
        begun, outer = comm.now(), self.outer_of(len(self.size))  # for all workers, even if some are left out
        weights = by_rows(work)

        def move(params: ParameterSlice) -> None:
            moved: object = outer.apply(params, combined(self.combine, params, weights))  # type: ignore[func-returns-value]
            if moved is not None:
                raise DataError(f"{type(outer).__name__}.apply must write params.center, got {shorten(moved)} returned")

        self.merge_into_center(comm, work, move, outer.fade_merges)
        self.lengthen(begun, comm.now(), sum(done.rows for done in work.values()))

    @property
    def merging_allowed(self) -> float:
        """Return the share of the time that merges may take before rounds become twice as long as now."""
        if self.round_rows >= self.n_rows:
            return 1.0
        can_double = 2 * self.round_rows * LEAST_MERGES <= self.n_rows
        return self.merging if can_double else max(self.merging, MOST_MERGING)

    def lengthen(self, begun: float, ended: float, rows: int) -> None:
        """Double the length of rounds, up to an epoch, until merges take at most `merging_allowed` of the time.

        begun, ended : of the last merge, in seconds. rows : rows of its round.

        Rounds get longer only if merges took too much on average. The first merge does not count, as it allocates
        memory, and neither does that of a round which the end of an epoch cut short.
        """
        if self.merged_at is not None and ended > self.merged_at and rows >= self.round_rows:
            merging, seconds = ended - begun, begun - self.merged_at
            share = moving_average(self.share, merging / (merging + seconds))
            while share > self.merging_allowed:
                self.sync_every, seconds = 2 * self.sync_every, 2 * seconds
                share = min(share, merging / (merging + seconds))
            self.share = share
        self.merged_at = ended

    def notes(self) -> dict[str, object]:
        """Return the current number of steps per round."""
        return {"steps": self.sync_every}
