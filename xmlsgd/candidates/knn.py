"""Training rows as a memory: a row's labels are those that its nearest training rows vote for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..data.csr import CSR, pointers
from ..devices.cpu import CPU
from ..devices.cpu.compiling import for_kernels
from ..devices.cpu.kernels.neighbors import scratch_shapes, vote, write_postings
from ..errors import ModelFileError
from .weighting import rows_with

NEIGHBORS = 64  # docs/decisions/shortlist.md compares what they say with the other paths
# Entries of posting lists that a row reads: 7 microseconds, recall as with twice as many (docs/decisions/shortlist.md).
# Frequent features come last and say little.
BUDGET = 1 << 12
VALUES = 32767  # of int16 that stand for 1


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Training rows by feature, and their labels.

    postings : CSR (F, n), feature f's rows and values in rows of norm 1. Y : their labels. weight : float32 (n,), how
    much a row's vote counts. To predict only, indices may be uint16, and values int16, `VALUES` times what they are.
    """

    postings: CSR
    Y: CSR
    weight: np.ndarray

    @classmethod
    def build(cls, X: CSR, Y: CSR, weight: np.ndarray) -> Neighbors:
        """Return the memory of rows of norm 1. Features of more rows than `BUDGET` are left out."""
        lengths = rows_with(X)
        indptr = pointers(np.where(lengths <= BUDGET, lengths, 0))
        rows, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        write_postings.alone(*map(for_kernels, (X.indptr, X.indices, X.data)), indptr, indptr[:-1].copy(), rows, values)
        return cls(CSR(indptr, rows, values, X.n_rows), Y, weight)

    def with_rows(self, X: CSR, Y: CSR, weight: np.ndarray) -> Neighbors:
        """Return a memory of these rows as well, which may have more features and labels."""
        old = self.postings.to_scipy().T
        old.resize(old.shape[0], X.n_cols)
        known = self.Y.to_scipy()
        known.resize(known.shape[0], Y.n_cols)
        both = CSR.from_scipy(sp.vstack([known, Y.to_scipy()]), "Y")
        rows = CSR.from_scipy(sp.vstack([old, X.to_scipy()]))
        return self.build(rows, both, np.concatenate([self.weight, weight]))

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Return the memory in the order of the kernels."""
        postings, Y = self.postings, self.Y
        unit = np.float32(1 / VALUES if postings.data.dtype == np.int16 else 1)
        return postings.indptr, postings.indices, postings.data, unit, Y.indptr, Y.indices, self.weight

    def scratch(self, device: CPU) -> tuple[np.ndarray, ...]:
        """Return what the kernels need besides, for each thread of a device that is started."""
        shapes = scratch_shapes(self.Y.n_rows, self.Y.n_cols, BUDGET, device.n_threads)
        names, kinds = ("votes clean", "votes items", "votes values"), (np.float32, np.int32, np.float32)
        return tuple(map(device.buffer, names, shapes, kinds))

    def votes(
        self, X: CSR, size: int, device: CPU, own: int = -1, fewer: tuple[float, int] = (np.inf, 0)
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the `size` labels that most neighbors of each row vote for: (labels, shares, nearest).

        Labels int32 and shares of the votes float32 (n, size), in no order, filled up with -1 and 0; the cosine of the
        nearest training row, float32 (n,). own : X are the training rows from this one on; none votes for itself.
        fewer : a cosine, and how many labels a row gets whose nearest training row has a larger one.
        """
        labels, shares = np.empty((X.n_rows, size), np.int32), np.empty((X.n_rows, size), np.float32)
        sound, nearest = np.empty(X.n_rows, np.bool_), np.empty(X.n_rows, np.float32)
        device.run(
            vote, X.indptr, X.indices, X.data, *self.arrays, NEIGHBORS, BUDGET, own, np.float32(fewer[0]), fewer[1],
            *self.scratch(device), device.n_threads, labels, shares, sound, nearest,
        )  # fmt: skip
        check_sound(sound)
        return labels, shares, nearest


def check_sound(sound: np.ndarray) -> None:
    """Raise `ModelFileError` unless all rows met what `save` writes; a compact model is checked as it is read."""
    if not sound.all():
        raise ModelFileError("the model's folder is damaged: a pointer or an index leads to nothing; copy it again")
