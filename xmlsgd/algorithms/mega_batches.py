"""Rounds whose rows are a mega-batch, as in Adaptive SGD and its baseline."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.validation import at_least
from .rounds import Rounds

BATCHES = 100  # in a mega-batch (Adaptive SGD, 2021)


@dataclass
class MegaBatches(Rounds):
    """Rounds of `mega_batch` rows for all workers together.

    A class of algorithms derives from it before `Algorithm`, and defines `merge_replicas`.
    """

    mega_batch: int | None = at_least(None, 1)

    @property
    def mega_rows(self) -> int:
        """Return the rows of a mega-batch: at least a batch for everyone, by default an even part of an epoch."""
        parts = max(round(self.n_rows / (BATCHES * self.batch)), 1)
        return max(self.mega_batch or -(-self.n_rows // parts), sum(self.size.values()))

    def open_rows(self, w: int) -> float:
        """Return what is left of the mega-batch: of all if it is dynamic, else of the worker's equal part."""
        return self.rest_of_round(self.mega_rows, w)
