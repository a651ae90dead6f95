"""Co-occurrence of features and labels: proposes labels that one feature indicates, even if no neighbor has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..data.csr import CSR, pointers
from ..devices.cpu import CPU
from ..devices.cpu.kernels.cooccurrence import cooccurrence, count_labels
from ..devices.cpu.kernels.logits import ONE_SCALE
from .knn import check_sound
from .splicing import with_replaced
from .weighting import without_wide_rows

N_LABELS = 32  # labels per feature: those that occur with it most often (docs/decisions/candidates.md)
N_COOCCURRING = 64  # candidates per row in addition to those of its neighbors (docs/decisions/candidates.md)
N_COOCCURRING_IN_TRAINING = 16  # for rows that are not held out: as good negatives as all 64, in less time
SHRINKAGE = np.float32(2)  # virtual rows without labels per feature, which lower the shares of rare features


@dataclass(frozen=True, eq=False)
class Cooccurrence:
    """The labels that occur most often with each feature.

    shares : CSR (F, L), the share of the rows with the feature that have the label. totals : float32 (F,), the sum of
    the weights of the rows with the feature. scales : factor of the stored shares of each feature, or of all. In a
    compact model, indices may be uint16, and shares are int8.
    """

    shares: CSR
    totals: np.ndarray
    scales: np.ndarray = field(default_factory=lambda: ONE_SCALE)

    @classmethod
    def count(cls, X: CSR, Y: CSR, weight: np.ndarray, device: CPU) -> Cooccurrence:
        """Count rows X with labels Y and weights, float32 (n,); the device must have been started."""
        weight, columns = without_wide_rows(X, Y, weight), X.to_scipy().tocsc()
        columns.eliminate_zeros()
        starts = columns.indptr.astype(np.int64)
        pairs = pointers(np.diff(Y.indptr)[columns.indices])[starts]
        room = pointers(np.minimum(np.diff(pairs), N_LABELS))
        bounds = np.searchsorted(pairs, np.linspace(0, pairs[-1], device.n_threads + 1))
        bounds[0], bounds[-1] = 0, X.n_cols
        labels, shares = np.empty(room[-1], np.int32), np.empty(room[-1], np.float32)
        totals = np.empty(X.n_cols, np.float32)
        device.run(
            count_labels, starts, columns.indices.astype(np.int32, copy=False), Y.indptr, Y.indices, weight, bounds,
            room, *_scratch(Y.n_cols, device, np.float64), totals, labels, shares,
        )  # fmt: skip
        kept = CSR(room, labels, shares, Y.n_cols).where(labels >= 0)
        return cls(CSR.from_scipy(kept.to_scipy()), totals)  # `from_scipy` sorts the labels of each feature

    def with_rows(self, X: CSR, Y: CSR, weight: np.ndarray, device: CPU) -> Cooccurrence:
        """Return the counts with further rows, which may have more features and labels; the device must be started."""
        new = self.count(X, Y, weight, device)
        totals = new.totals.copy()
        totals[: len(self.totals)] += self.totals
        touched = np.flatnonzero(new.totals)
        counts = _counts(self, touched, Y.n_cols) + _counts(new, touched, Y.n_cols)
        counts.sort_indices()
        place, label = counts.nonzero()
        order = np.lexsort((label, -counts.data, place))
        rank = np.arange(counts.nnz) - counts.indptr[place[order]]
        kept = np.sort(order[rank < N_LABELS])
        shares = counts.data[kept] / totals[touched[place[kept]]]
        indptr = pointers(np.bincount(place[kept], minlength=len(touched)))
        found = CSR(indptr, label[kept].astype(np.int32), shares, Y.n_cols)
        return Cooccurrence(with_replaced(self.shares, touched, found, X.n_cols, device), totals)

    @property
    def share_scale(self) -> np.ndarray:
        """Return the factor by which stored shares of each feature are multiplied, float32 (F,)."""
        share_scale: np.ndarray = self.totals / (self.totals + SHRINKAGE) * self.scales
        return share_scale

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Return the shares and their scale by feature, in the order of the kernels' arguments."""
        return self.shares.indptr, self.shares.indices, self.shares.data, self.share_scale

    def candidates(
        self, X: CSR, listed: np.ndarray, device: CPU, n_more: int = N_COOCCURRING
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return `listed` with the `n_more` other labels of the largest co-occurrence, and the co-occurrence of all.

        listed : candidate labels of the rows X, int32 (n, m). The results are int32 and float32 (n, m + n_more). The
        device must have been started.
        """
        n, given = listed.shape
        labels, out = np.empty((n, given + n_more), np.int32), np.empty((n, given + n_more), np.float32)
        labels[:, :given] = listed
        sound = np.empty(n, np.bool_)
        device.run(
            cooccurrence, X.indptr, X.indices, X.data, *self.arrays, *_scratch(self.shares.n_cols, device), given,
            labels, out, sound,
        )  # fmt: skip
        check_sound(sound)
        return labels, out


def _scratch(n_labels: int, device: CPU, sums: Any = np.float32) -> tuple[np.ndarray, ...]:
    """Return scratch arrays of the kernels, with a row for each thread; sums : the type of sums by label."""
    names, kinds = ("labels clean", "labels named", "labels values"), (sums, np.int32, np.float32)
    shapes = [(device.n_threads, n_labels), *2 * [(device.n_threads, n_labels + 1)]]
    return tuple(map(device.buffer, names, shapes, kinds))


def _counts(found: Cooccurrence, features: np.ndarray, n_labels: int) -> sp.csr_array:
    """Return a matrix (features, labels) of the total weight of the rows that have both."""
    known = features[features < len(found.totals)]
    counts = sp.diags_array(found.totals[known]).tocsr() @ found.shares.take(known).to_scipy()
    counts.resize(len(features), n_labels)
    return counts
