"""Labels that exclude each other: two frequent labels that hardly any row has together make each other unlikely."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.csr import CSR
from ..devices.cpu import CPU
from ..devices.cpu.kernels.exclusion import UNIT, exclude

N_EXCLUDING = 1024  # the most frequent labels, which can exclude each other (docs/decisions/stacking.md)
PRIOR = 0.3  # rows added to both numbers of a lift (docs/decisions/stacking.md)


@dataclass(frozen=True, eq=False)
class Exclusion:
    """Lowers the log odds of candidates that rarely occur together with a more probable candidate of the row.

    labels : the labels of the table, int32 (N,), ascending. table : 1 - lift, in units of `UNIT`, uint8 (N, N). The
    lift of two labels is the number of rows that have both, divided by the number expected by chance, both plus
    `PRIOR`, and at most 1. weight : factor of the log odds that labels lose (`exclude_in_row`).
    """

    labels: np.ndarray
    table: np.ndarray
    weight: float = 1.0

    @classmethod
    def count(cls, Y: CSR, labels: np.ndarray) -> Exclusion:
        """Count the rows that have each pair of these labels."""
        rows = Y.to_scipy()[:, labels]
        rows.data[:] = 1
        both = (rows.T @ rows).toarray(order="C")  # kernels are compiled for this order
        own = both.diagonal()
        lift = (both + PRIOR) / (np.outer(own / max(Y.n_rows, 1), own) + PRIOR)
        np.fill_diagonal(lift, 1)
        return cls(labels, np.clip(np.rint((1 - lift) / UNIT), 0, np.iinfo(np.uint8).max).astype(np.uint8))

    def corrected(
        self, log_odds: np.ndarray, labels: np.ndarray, first: np.ndarray, n_excluding: int, device: CPU
    ) -> np.ndarray:
        """Return the log odds, float32 (n, M), of candidate labels, int32 (n, M), less those lost by exclusion.

        Only the `n_excluding` best candidates of a row by `first`, float32 (n, M), exclude others, as prediction scores
        no more. The device must have been started.
        """
        out, first = log_odds.copy(), np.where(labels >= 0, first, -np.inf).astype(np.float32)
        nth = max(first.shape[1] - n_excluding, 0)
        least = np.partition(first, nth, axis=1)[:, nth]
        device.run(exclude, labels, first, least, *self.arrays, out)
        return out

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.float32]:
        """Return each label's row in the table (-1 for none), the table and the weight, as the kernels take them."""
        row = np.full(self.labels.max(initial=-1) + 1, -1, np.int32)
        row[self.labels] = np.arange(len(self.labels))
        return row, self.table, np.float32(self.weight)


NO_EXCLUSION = Exclusion(np.empty(0, np.int32), np.empty((0, 0), np.uint8))


def most_frequent(frequency: np.ndarray) -> np.ndarray:
    """Return the `N_EXCLUDING` labels with the most rows, int32, ascending."""
    return np.sort(np.argsort(-frequency, kind="stable")[:N_EXCLUDING]).astype(np.int32)
