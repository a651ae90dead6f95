"""Adaptive SGD: dynamic scheduling, batch size scaling, normalized model merging.

Ma, Rusu, Wu, Sim 2021 (arXiv 2110.07029), Algorithms 1 and 2. Batches of a mega-batch go to whoever is free. Then
replicas are merged by their shares of the updates, with global momentum, and sizes change so that all will make equally
many updates in the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..data.validation import check_choice
from ..errors import DataError
from .base import Comm
from .combining import COMBINE, WEIGHTS, Work
from .mega_batches import MegaBatches
from .outer import HeavyBall, block_momentum, check_momentum

STEP32 = 32  # rows: the size step of the released code


@dataclass
class AdaptiveSGD(MegaBatches):
    """batch : b_max, the largest size; a size b trains at rate * b / b_max.

    low : b_min; None for 3/4 of b_max, since every update passes all labels, however few rows it has (the paper has
    b_max / 8). mega_batch : see `MegaBatches`. size_rule : "multiplicative", "additive" (the paper's), "step32" (of the
    released code) or "fixed". kappa : exponent of the multiplicative rule, in (0, 2), monotone up to 1. size_step :
    beta of the additive rule; None for the largest that does not oscillate. out_of_range : "clamp", or "skip" as the
    paper has it. dispatch : "dynamic", or "static" for equal shares. weights, combine : see `combining.py`. momentum :
    gamma, in [0, 1); None for min(1 - 1/n, 0.8). perturbation : delta, in [0, 1); the paper's 0.1 inflates the model.
    norm_threshold : norm a parameter above which nothing is perturbed. renormalise : whether perturbed weights are made
    to sum to 1. straggler_timeout : times its usual duration that a batch may take before the others merge without its
    worker, > 1; math.inf waits for everybody, as the paper does.
    """

    low: int | None = None
    size_rule: str = "multiplicative"
    kappa: float = 0.5
    size_step: float | None = None
    out_of_range: str = "clamp"
    dispatch: str = "dynamic"
    weights: str = "updates"
    combine: str = "mean"
    momentum: float | None = None
    perturbation: float = 0.0
    norm_threshold: float = 0.1
    renormalise: bool = True
    straggler_timeout: float = 2.0

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges and unknown names."""
        super().__post_init__()
        check_choice("size_rule", self.size_rule, SIZE_RULES)
        check_choice("out_of_range", self.out_of_range, ("clamp", "skip"))
        check_choice("dispatch", self.dispatch, ("dynamic", "static"))
        check_choice("weights", self.weights, WEIGHTS)
        check_choice("combine", self.combine, COMBINE)
        if not 0 < self.kappa < 2:
            raise DataError(f"kappa must be in (0, 2), got {self.kappa}")
        if not 0 <= self.perturbation < 1:
            raise DataError(f"perturbation must be in [0, 1), got {self.perturbation}")
        if self.low is not None and self.low < 1:
            raise DataError(f"low must be at least 1, got {self.low}")
        if self.low is not None and self.low > self.batch:
            raise DataError(f"low must be at most the batch, {self.batch}, got {self.low}")
        if self.size_step is not None and not 0 < self.size_step < math.inf:
            raise DataError(f"size_step must be finite and above 0, got {self.size_step}")
        if not self.norm_threshold >= 0:
            raise DataError(f"norm_threshold must be at least 0, got {self.norm_threshold}")
        if self.momentum is not None:
            check_momentum(self.momentum)

    def outer_of(self, n_workers: int) -> HeavyBall:
        """Return the global momentum of a merge of so many replicas."""
        return block_momentum(n_workers) if self.momentum is None else HeavyBall(self.momentum)

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Give all workers the largest size."""
        super().start(workers, n_rows)
        self.least = self.low if self.low is not None else max(3 * self.batch // 4, 1)

    @property
    def dynamic(self) -> bool:  # type: ignore[override]
        """Return whether batches go to whoever is free."""
        return self.dispatch == "dynamic"

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return the learning rate, linear in the size of the worker's batches."""
        return self.learning_rate * self.size[w] / self.batch

    def merge_all(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Merge by normalized weights with global momentum, then change the sizes."""
        self.shares = self.merge_weights(comm, work)
        self.average(comm, work, self.shares, COMBINE[self.combine])
        # An epoch may end within a mega-batch: counts of a part of it say too little.
        if 2 * sum(done.rows for done in work.values()) >= self.mega_rows:
            self.rescale(work)

    def merge_weights(self, comm: Comm, work: Mapping[int, Work]) -> dict[int, float]:
        """Return the weight of each replica: its share, the extremes perturbed while the model is small."""
        alpha = WEIGHTS[self.weights](work)
        updates = {w: done.updates for w, done in work.items()}
        if not self.perturbation or len(set(updates.values())) == 1 or not self._small(comm, work):
            return alpha
        alpha[max(updates, key=lambda w: updates[w])] *= 1 + self.perturbation
        alpha[min(updates, key=lambda w: updates[w])] *= 1 - self.perturbation
        total = sum(alpha.values()) if self.renormalise else 1.0
        return {w: a / total for w, a in alpha.items()}

    def _small(self, comm: Comm, work: Mapping[int, Work]) -> bool:
        """Return whether every replica's norm a parameter is below the threshold."""
        return all(comm.norm(w) / comm.n_params < self.norm_threshold for w in work)

    def rescale(self, work: Mapping[int, Work]) -> None:
        """Change the sizes by the size rule; who joined in the middle of the mega-batch keeps its own."""
        updates = {w: done.updates for w, done in work.items() if w not in self.newcomers}
        if any(updates.values()):
            self.size |= SIZE_RULES[self.size_rule](self, updates)

    def within(self, sizes: Mapping[int, float]) -> dict[int, int]:
        """Return wanted sizes as whole rows within the bounds; those outside are clamped or left as they were."""
        if self.out_of_range == "skip":
            sizes = {w: b if self.least <= b <= self.batch else self.size[w] for w, b in sizes.items()}
        return {w: int(min(max(round(b), self.least), self.batch)) for w, b in sizes.items()}


SizeRule = Callable[[AdaptiveSGD, Mapping[int, int]], dict[int, int]]


def fixed(sgd: AdaptiveSGD, updates: Mapping[int, int]) -> dict[int, int]:
    """Return the sizes as they are."""
    return {w: sgd.size[w] for w in updates}


def multiplicative(sgd: AdaptiveSGD, updates: Mapping[int, int]) -> dict[int, int]:
    """Return sizes times (updates over their mean) ** kappa, the largest held at b_max.

    Ratios contract to those of the speeds; the largest is pinned because the rule leaves the level of all sizes free.
    """
    mean = np.mean(list(updates.values()))
    wanted = {w: sgd.size[w] * (u / mean) ** sgd.kappa for w, u in updates.items()}
    level = sgd.batch / max(wanted.values())
    return sgd.within({w: b * level for w, b in wanted.items()})


def additive(sgd: AdaptiveSGD, updates: Mapping[int, int]) -> dict[int, int]:
    """Return sizes plus beta times (updates - their mean): the paper's rule.

    Stable if beta * updates / size < 2, monotone below 1, which the automatic beta keeps.
    """
    mean = np.mean(list(updates.values()))
    largest = min((sgd.size[w] / u for w, u in updates.items() if u), default=math.inf)
    beta = min(largest, sgd.least / 2) if sgd.size_step is None else sgd.size_step
    return sgd.within({w: sgd.size[w] + beta * (u - mean) for w, u in updates.items()})


def step32(sgd: AdaptiveSGD, updates: Mapping[int, int]) -> dict[int, int]:
    """Return sizes 32 rows larger above the mean of the updates, 32 smaller below: the released code's rule."""
    mean = np.mean(list(updates.values()))
    return sgd.within({w: sgd.size[w] + STEP32 * int(np.sign(u - mean)) for w, u in updates.items()})


SIZE_RULES: dict[str, SizeRule] = {
    "multiplicative": multiplicative,
    "additive": additive,
    "step32": step32,
    "fixed": fixed,
}
