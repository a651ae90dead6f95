"""Outer optimizers: what the shared model does with the mean of the replicas.

One interface for model averaging, block momentum (BMUF; Chen and Huo 2016), Adaptive SGD's global momentum (Ma et al.
2021), DiLoCo's Nesterov momentum (Douillard et al. 2023) and an outer Adam (Reddi et al. 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from ..merging import Part

NEGLIGIBLE = 1e-3  # of a row's last motion; what momentum would still do to an untouched row after that is left out


@dataclass(frozen=True)
class Outer:
    """The plain mean: the shared model becomes it."""

    def apply(self, part: Part, mean: np.ndarray) -> None:
        """Move `part.center` given the mean of the replicas, float32 of its shape."""
        part.center[:] = mean

    @property
    def memory(self) -> int:
        """Return the merges for which a row that nobody touches still moves."""
        return 0


@dataclass(frozen=True)
class HeavyBall(Outer):
    """Block momentum: motion <- momentum * motion + rate * (mean - center); center <- center + motion.

    With rate 1 it is Adaptive SGD's w <- mean + momentum * (w - w_previous). momentum in [0, 1), rate > 0.
    """

    momentum: float = 0.75
    rate: float = 1.0

    def __post_init__(self) -> None:
        """Raise `DataError` for a momentum that would never let go."""
        check_momentum(self.momentum)

    def apply(self, part: Part, mean: np.ndarray) -> None:
        """Move the center."""
        motion = part.slot("motion")
        motion *= np.float32(self.momentum)
        motion += np.float32(self.rate) * (mean - part.center)
        part.center += motion

    @property
    def memory(self) -> int:
        """Return the merges until the motion of an untouched row is negligible."""
        return fading(self.momentum)


@dataclass(frozen=True)
class Nesterov(Outer):
    """DiLoCo: d = center - mean; v <- momentum * v + d; center <- center - rate * (d + momentum * v)."""

    momentum: float = 0.9
    rate: float = 0.7

    def __post_init__(self) -> None:
        """Raise `DataError` for a momentum that would never let go."""
        check_momentum(self.momentum)

    def apply(self, part: Part, mean: np.ndarray) -> None:
        """Move the center."""
        velocity, d = part.slot("velocity"), part.center - mean
        velocity *= np.float32(self.momentum)
        velocity += d
        part.center -= np.float32(self.rate) * (d + np.float32(self.momentum) * velocity)

    @property
    def memory(self) -> int:
        """Return the merges until the motion of an untouched row is negligible."""
        return fading(self.momentum)


@dataclass(frozen=True)
class OuterAdam(Outer):
    """FedAdam: Adam on d = center - mean, without bias correction; `epsilon` keeps rare rows from leaping."""

    rate: float = 0.01
    momentum: float = 0.9
    decay: float = 0.99
    epsilon: float = 1e-3

    def apply(self, part: Part, mean: np.ndarray) -> None:
        """Move the center."""
        first, second, d = part.slot("first moment"), part.slot("second moment"), part.center - mean
        first += np.float32(1 - self.momentum) * (d - first)
        second += np.float32(1 - self.decay) * (d * d - second)
        part.center -= np.float32(self.rate) * first / (np.sqrt(second) + np.float32(self.epsilon))

    @property
    def memory(self) -> int:
        """Return the merges until the motion of an untouched row is negligible."""
        return fading(self.momentum)


def check_momentum(momentum: float) -> None:
    """Raise `DataError` unless the momentum is in [0, 1)."""
    if not 0 <= momentum < 1:
        raise DataError(f"momentum must be in [0, 1), got {momentum}")


def fading(momentum: float) -> int:
    """Return the merges after which momentum has made a motion negligible."""
    return math.ceil(math.log(NEGLIGIBLE) / math.log(momentum)) if momentum > 0 else 0
