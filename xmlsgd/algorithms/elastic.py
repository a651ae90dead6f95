"""Elastic averaging: equal shares for all, then the plain mean: the baseline of the Adaptive SGD paper.

Ma, Rusu, Wu, Sim 2021 (arXiv 2110.07029): a mega-batch is split evenly beforehand, so that all wait for the slowest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from .adaptive import AdaptiveSGD


@dataclass
class Elastic(AdaptiveSGD):
    """Adaptive SGD with static shares, fixed sizes, equal weights and no momentum."""

    size_rule: str = "fixed"
    dispatch: str = "static"
    weights: str = "equal"
    momentum: float | None = 0.0
    patience: float = inf
