"""Outer optimizers move the shared model, given the array into which a combiner has combined the replicas.

One interface for model averaging, block momentum (BMUF; Chen and Huo 2016), Adaptive SGD's global momentum (Ma et al.
2021) and DiLoCo's Nesterov momentum (Douillard et al. 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..data.validation import Checked, above_zero, below_one
from ..training.merging import ParameterSlice

MOST_MOMENTUM = 0.8  # largest block momentum: with 0.9, P@1 of four workers fell by a tenth
NEGLIGIBLE = 1e-3  # share of its last motion below which an untouched row no longer moves by momentum


@dataclass(frozen=True)
class Outer(Checked):
    """Plain averaging: the shared model becomes the combined replicas. Also the base class of the others."""

    momentum = 0.0

    @property
    def n_states(self) -> int:
        """Return the number of merge states that `apply` asks for."""
        return 0

    def apply(self, params: ParameterSlice, combined: np.ndarray) -> None:
        """Move `params.center`, given the combined replicas, float32 of the same shape, which may be overwritten."""
        params.center[:] = combined

    @property
    def fade_merges(self) -> int:
        """Return the number of merges in which momentum still moves a row that no worker touches."""
        return merges_to_fade(self.momentum)


@dataclass(frozen=True)
class HeavyBall(Outer):
    """Block momentum: motion <- momentum * motion + rate * (combined - center); center <- center + motion.

    With rate 1 this is w <- combined + momentum * (w - w_previous), as in Adaptive SGD. momentum : in [0, 1).
    learning_rate : the rate, > 0.
    """

    momentum: float = below_one(0.75)
    learning_rate: float = above_zero(1.0)

    @property
    def n_states(self) -> int:
        """Return 1, the motion, unless there is none."""
        return int(self.momentum > 0 or self.learning_rate != 1)

    def apply(self, params: ParameterSlice, combined: np.ndarray) -> None:
        """Move the center."""
        if not self.n_states:
            params.clear("motion")  # there may be one from when there were more workers, and thus more momentum
            params.center[:] = combined  # center + (combined - center) would round
            return
        motion = params.state("motion")
        motion *= np.float32(self.momentum)
        combined -= params.center
        if self.learning_rate != 1:
            combined *= np.float32(self.learning_rate)
        motion += combined
        params.center += motion


@dataclass(frozen=True)
class Nesterov(Outer):
    """DiLoCo: d = center - combined; v <- momentum * v + d; center <- center - rate * (d + momentum * v)."""

    momentum: float = below_one(0.9)
    learning_rate: float = above_zero(0.7)

    n_states = 1

    def apply(self, params: ParameterSlice, combined: np.ndarray) -> None:
        """Move the center."""
        velocity, d = params.state("velocity"), params.center - combined
        velocity *= np.float32(self.momentum)
        velocity += d
        params.center -= np.float32(self.learning_rate) * (d + np.float32(self.momentum) * velocity)


OUTERS: dict[str, type[Outer]] = {"mean": Outer, "heavy_ball": HeavyBall, "nesterov": Nesterov}


def block_momentum(n_workers: int, most: float = MOST_MOMENTUM) -> HeavyBall:
    """Return the momentum that BMUF recommends for n workers, 1 - 1/n, but at most `most`."""
    return HeavyBall(min(1 - 1 / max(n_workers, 1), most))


def merges_to_fade(momentum: float) -> int:
    """Return the number of merges after which momentum has made a motion negligible."""
    return math.ceil(math.log(NEGLIGIBLE) / math.log(momentum)) if momentum > 0 else 0
