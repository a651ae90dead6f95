"""Mega-batches: the rows that are trained between two merges (Ma, Rusu, Wu, Sim 2021, arXiv 2110.07029)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import DataError
from .rounds import Rounds

BATCHES = 100  # of the largest size in a mega-batch (the paper's default)


@dataclass
class MegaBatches(Rounds, ABC):
    """Rounds of so many rows for all workers together.

    mega_batch : rows between merges, at least the sum of the sizes; None for about 100 of the largest batches, in even
    parts of an epoch. shares : of the last merge, the weight of each replica.
    """

    mega_batch: int | None = None

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges."""
        super().__post_init__()
        if self.mega_batch is not None and self.mega_batch < 1:
            raise DataError(f"mega_batch must be at least 1, got {self.mega_batch}")

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin the first mega-batch."""
        super().start(workers, n_rows)
        self.shares: Mapping[int, float] = {}

    @property
    def mega_rows(self) -> int:
        """Return the rows of a mega-batch: at least one batch for everyone."""
        rows = self.mega_batch or even_part(self.n_rows, BATCHES * self.batch)
        return max(rows, sum(self.size.values()))

    def open_rows(self, w: int) -> float:
        """Return the rows of the mega-batch that are left."""
        return self.left_of(self.mega_rows, w)

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return batch sizes and merge weights."""
        return {**super().worker_notes(), "weight": {w: round(a, 6) for w, a in self.shares.items()}}


def even_part(n_rows: int, wanted: int) -> int:
    """Return about `wanted` rows, such that rounds of so many divide an epoch into even parts."""
    return -(-n_rows // max(round(n_rows / wanted), 1))
