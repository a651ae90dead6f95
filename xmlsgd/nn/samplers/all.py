"""All labels take part in every batch: nothing is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import Batch, Sampler


@dataclass(frozen=True)
class AllLabels(Sampler):
    """Every label takes part in every batch."""

    @classmethod
    def of(cls, negatives: int) -> AllLabels:
        """Return the sampler, whatever the number."""
        return cls()

    def draw(self, batch: Batch) -> np.ndarray | None:
        """Return None, which stands for all labels."""
        return None


ALL_LABELS = AllLabels()
SAMPLER = AllLabels
