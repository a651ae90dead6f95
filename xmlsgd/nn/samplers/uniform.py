"""Negatives drawn uniformly, independent of the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...data.random_streams import NEGATIVES
from ...data.validation import Checked, at_least
from .base import Batch, Sampler


@dataclass(frozen=True)
class UniformNegatives(Checked, Sampler):
    """The true labels of the batch, and `negatives` (>= 0) more, drawn uniformly; all rows of the batch share them.

    The loss of a drawn label is not divided by its probability of being drawn: with this weight, its noise cost
    accuracy (docs/decisions/training.md). Without it, with binary cross-entropy, the logit of a label rises by minus
    the logarithm of the probability that it takes part where it is not true, so that rare labels are ranked higher.
    """

    negatives: int = at_least(1024, 0)

    def draw(self, batch: Batch) -> np.ndarray | None:
        """Return the labels of a batch; None where nearly all would take part."""
        rng = np.random.default_rng((batch.seed, NEGATIVES))
        return batch.with_true(rng.integers(batch.Y.n_cols, size=self.negatives))


SAMPLER = UniformNegatives
