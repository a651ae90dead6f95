"""Plain averaging per mega-batch, the baseline "Elastic" of the Adaptive SGD paper; not EASGD (`easgd.py`).

Ma, Rusu, Wu, Sim 2021 (arXiv 2110.07029). A mega-batch is split evenly beforehand, so that all wait for the slowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..training.merging import Comm
from .combiners import equal, move_to_mean
from .rounds import MEGA_BATCH, LocalWork, MegaBatches


@dataclass
class Elastic(MegaBatches):
    """Every worker trains an equal part of a mega-batch in batches of `batch` rows; then replicas are averaged.

    mega_batch : rows between merges, at least one batch per worker; None for equal parts of an epoch, at least four, of
    about 100 batches.
    """

    @classmethod
    def published(cls, batch: int = 1024, learning_rate: float = 6e-3) -> Elastic:
        """Return the paper's setting: M = 100 batches, even if the last mega-batch of an epoch is shorter then."""
        return cls(batch, learning_rate, mega_batch=MEGA_BATCH * batch)

    def merge_replicas(self, comm: Comm, work: Mapping[int, LocalWork]) -> None:
        """Set the center to the mean of the replicas."""
        self.merge_into_center(comm, work, move_to_mean(equal(work)))
