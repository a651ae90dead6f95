"""Elastic averaging: equal shares for all, then the plain mean: the baseline of the Adaptive SGD paper.

Ma, Rusu, Wu, Sim 2021 (arXiv 2110.07029): a mega-batch is split evenly beforehand, so that all wait for the slowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .base import Comm
from .combining import Work, equal
from .mega_batches import MegaBatches


@dataclass
class Elastic(MegaBatches):
    """Every worker trains an equal part of a mega-batch in batches of `batch` rows; then replicas are averaged."""

    def merge_all(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Take the mean as the common model."""
        self.shares = equal(work)
        self.average(comm, work, self.shares)
