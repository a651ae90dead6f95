"""Which labels a batch trains: all of them, or its own true labels and some that no row of it has.

A row and a label that it does not have teach little, and most of a step goes into such pairs. That a whole batch shares
its labels keeps the work a product of dense matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .csr import NEGATIVES
from .errors import DataError

if TYPE_CHECKING:
    from .csr import CSR

DENSE_SHARE = 0.75  # of the labels: beyond it gathering their weights costs more than training all


@dataclass(frozen=True)
class Sampler:
    """Base of all samplers: every label takes part in every batch."""

    def labels(self, Y: CSR, rows: np.ndarray, seed: tuple[int, ...]) -> np.ndarray | None:
        """Return the labels that a batch trains, int32, ascending, all true labels of `rows` among them; None for all.

        `seed` names the batch: the same labels come again for the same numbers.
        """
        return None


@dataclass(frozen=True)
class SharedNegatives(Sampler):
    """The true labels of the batch, and `negatives` more drawn evenly, which all of its rows share; negatives >= 0.

    The loss of a drawn label is not divided by its chance of being drawn: what is learned are the same orders of labels
    at higher logits, and the noise of such weights cost accuracy (docs/decisions.md).
    """

    negatives: int = 1024

    def __post_init__(self) -> None:
        """Raise `DataError` for fewer than no negatives."""
        if self.negatives < 0:
            raise DataError(f"negatives must be at least 0, got {self.negatives}")

    def labels(self, Y: CSR, rows: np.ndarray, seed: tuple[int, ...]) -> np.ndarray | None:
        """Return the labels of a batch; None where nearly all would take part."""
        marks = np.zeros(Y.n_cols, bool)
        marks[Y.row_entries(rows)] = True
        drawn = np.random.default_rng((*seed, NEGATIVES)).integers(Y.n_cols, size=self.negatives)
        marks[drawn] = True
        active = np.flatnonzero(marks).astype(np.int32)
        return active if len(active) < DENSE_SHARE * Y.n_cols else None


ALL_LABELS = Sampler()
