"""Adaptive SGD: dynamic scheduling, batch size scaling, normalized model merging.

Ma, Rusu, Wu, Sim 2021 (arXiv 2110.07029), Algorithms 1 and 2, for workers i with batch sizes b_i and u_i updates:

    mega-batch: batches of b_i rows go to whichever worker is free, until M rows are given out
    merge:      alpha_i = u_i / sum u, or b_i / sum b if all u are equal; the extremes perturbed by delta
                w_new = sum alpha_i w_i + gamma (w - w_previous)
    scale:      b_i = b_i + beta (u_i - mean u) within [b_min, b_max]; learning rate linear in b_i

`rounds.py` hands out batches, leaves stragglers out of merges and takes in workers that join.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..data.validation import at_least, below_one, check_choice, ranged
from ..errors import DataError
from ..training.merging import Comm
from .combiners import by_updates
from .outer import HeavyBall, block_momentum
from .rounds import MEGA_BATCH, LocalWork, MegaBatches

KAPPA = 0.5  # exponent of the multiplicative size rule: below 1 sizes settle without oscillation; 0.5 averages noise
NORM_THRESHOLD = 0.1  # pert_thr of the paper: norm of a replica divided by its number of parameters


@dataclass
class AdaptiveSGD(MegaBatches):
    """Free workers take the next batch; merges weigh replicas by updates; batch sizes adapt to equalize the updates.

    Parameters
    ----------
    batch : int
        b_max, the largest size.
    learning_rate : float
        At b_max; a size b trains at learning_rate * b / b_max.
    mega_batch : int or None
        M, rows between merges, at least the sum of the sizes; None for equal parts of an epoch, at least four, of
        about 100 of the largest batches.
    low : int or None
        b_min; None for 3/4 of b_max, since an update of few rows costs a pass over all labels, too (the paper has
        b_max / 8).
    size_rule : {"multiplicative", "additive"}
        How sizes change; "additive" is the paper's rule.
    momentum : float or None
        gamma, in [0, 1); None for min(1 - 1/n, 0.8).
    perturbation : float
        delta, in [0, 1); with the paper's 0.1 the weights of a merge sum to more than 1, so that the model grows.
    straggler_timeout : float
        A span that takes longer than this multiple of its usual duration makes its worker a straggler, without which
        the others merge, > 1. A worker also gets no batch that would end after the others could have done the rest of
        the mega-batch. math.inf gives batches to all free workers and waits for them, as the paper does.
    """

    low: int | None = at_least(None, 1)
    size_rule: str = "multiplicative"
    momentum: float | None = below_one(None)
    perturbation: float = below_one(0.0)
    straggler_timeout: float = ranged(2.0, "above 1", lambda value: value > 1)

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges and unknown names."""
        super().__post_init__()
        check_choice("size_rule", self.size_rule, SIZE_RULES)
        if self.low is not None and self.low > self.batch:
            raise DataError(f"low must be at most the batch, {self.batch}, got {self.low}")

    @classmethod
    def published(cls, batch: int = 1024, learning_rate: float = 6e-3) -> AdaptiveSGD:
        """Return the paper's settings: M = 100 b_max, gamma 0.9, delta 0.1, beta = b_min / 2, b_min = b_max / 8."""
        return cls(
            batch, learning_rate, mega_batch=MEGA_BATCH * batch, low=max(batch // 8, 1), size_rule="additive",
            momentum=0.9, perturbation=0.1, straggler_timeout=math.inf,
        )  # fmt: skip

    def outer_of(self, n_workers: int) -> HeavyBall:
        """Return the global momentum for `n_workers` workers."""
        return block_momentum(n_workers) if self.momentum is None else HeavyBall(self.momentum)

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the number of vectors of the global momentum; each worker that was a straggler needs one more."""
        return self.outer_of(n_workers).n_states

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Give all workers the largest size."""
        super().start(workers, n_rows)
        self.least = self.low if self.low is not None else max(3 * self.batch // 4, 1)
        self.shares: Mapping[int, float] = {}  # weight of each replica in the last merge

    # Algorithm 1: dynamic scheduling.

    dynamic = True

    def goes_on(self, w: int, now: float) -> bool:
        """Return whether rows of the mega-batch are left which the others would not train before worker `w` is done."""
        rows = self.open_rows(w)
        return rows > 0 and not self.throughput.others_are_sooner(w, rows, self.size, now)

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return the learning rate, linear in the rows of the batch, also of a short one at the end of an epoch.

        A single worker keeps its rate for the short batch, as plain SGD does.
        """
        return self.learning_rate * (rows if len(self.size) > 1 else self.size[w]) / self.batch

    # Algorithm 2: normalized model merging, batch size scaling.

    def merge_replicas(self, comm: Comm, work: Mapping[int, LocalWork]) -> None:
        """Merge by normalized weights with global momentum, then change the sizes."""
        # The momentum for all workers, even if some do not take part in this merge.
        alpha, outer = self.merge_weights(comm, work), self.outer_of(len(self.size))
        self.merge_into_center(comm, work, lambda each: outer.apply(each, each.weighted_sum(alpha)), outer.fade_merges)
        self.shares = alpha
        # The end of an epoch may cut a mega-batch short: update counts of less than half of one are too noisy.
        if 2 * sum(done.rows for done in work.values()) >= self.round_rows:
            self.scale_batches(work)

    def merge_weights(self, comm: Comm, work: Mapping[int, LocalWork]) -> dict[int, float]:
        """Return alpha: the share of each replica, the extremes perturbed while the model is small."""
        alpha = by_updates(work)
        updates = {w: done.updates for w, done in work.items()}
        if not self.perturbation or len(set(updates.values())) == 1:
            return alpha
        if any(comm.norm(w) >= NORM_THRESHOLD for w in work):
            return alpha
        alpha[max(updates, key=lambda w: updates[w])] *= 1 + self.perturbation
        alpha[min(updates, key=lambda w: updates[w])] *= 1 - self.perturbation
        return alpha

    def scale_batches(self, work: Mapping[int, LocalWork]) -> None:
        """Change the sizes by the size rule.

        A worker that joined in the middle of the mega-batch keeps its size, and so does a straggler, whose updates
        belong to two mega-batches.
        """
        updates = {w: done.updates for w, done in work.items() if w not in self.newcomers | self.behind}
        if any(updates.values()):
            self.size |= SIZE_RULES[self.size_rule](self, updates)

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return batch sizes and merge weights."""
        return {"batch": self.size, "weight": {w: round(a, 6) for w, a in self.shares.items()}}


SizeRule = Callable[[AdaptiveSGD, Mapping[int, int]], dict[int, int]]


def multiplicative(sgd: AdaptiveSGD, updates: Mapping[int, int]) -> dict[int, int]:
    """Return sizes times (updates / mean updates) ** KAPPA, scaled so that the largest is b_max.

    The ratios of the sizes converge to those of the speeds. The rule leaves their common level open, hence the scaling.
    """
    average = np.mean(list(updates.values()))
    wanted = {w: sgd.size[w] * (u / average) ** KAPPA for w, u in updates.items()}
    level = sgd.batch / max(wanted.values())
    return {w: min(max(round(b * level), sgd.least), sgd.batch) for w, b in wanted.items()}


def additive(sgd: AdaptiveSGD, updates: Mapping[int, int]) -> dict[int, int]:
    """Return sizes plus beta times (updates - mean updates), the paper's rule; sizes outside the bounds do not change.

    beta is b_min / 2. The rule oscillates where beta * updates / size is above 1, and is unstable above 2.
    """
    beta, average = sgd.least / 2, np.mean(list(updates.values()))
    wanted = {w: sgd.size[w] + beta * (u - average) for w, u in updates.items()}
    return {w: round(b) for w, b in wanted.items() if sgd.least <= b <= sgd.batch}


SIZE_RULES: dict[str, SizeRule] = {rule.__name__: rule for rule in (multiplicative, additive)}
