"""Elastic averaging: equal shares for all, then the plain mean: the baseline of the Adaptive SGD paper.

Ma, Rusu, Wu, Sim 2021 (arXiv 2110.07029): a mega-batch is split evenly beforehand, so that all wait for the slowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..training.merging import Comm
from .base import Algorithm
from .combiners import equal, move_to_mean
from .rounds import BATCHES, MegaBatches, Work


@dataclass
class Elastic(MegaBatches, Algorithm):
    """Every worker trains an equal part of a mega-batch in batches of `batch` rows; then replicas are averaged.

    mega_batch : rows between merges, at least a batch a worker; None for about 100 batches, in even parts of an epoch.
    """

    @classmethod
    def published(cls, batch: int = 1024, learning_rate: float = 6e-3) -> Elastic:
        """Return the paper's setting: M = 100 batches, also where an epoch cuts the last mega-batch short."""
        return cls(batch, learning_rate, mega_batch=BATCHES * batch)

    def merge_replicas(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Take the mean as the common model."""
        self.merge_into_center(comm, work, move_to_mean(equal(work)))
