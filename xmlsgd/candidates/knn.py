"""The k-NN index: finds the nearest training rows of a row, whose labels become its candidate labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..data.csr import CSR, pointers
from ..devices.cpu import CPU
from ..devices.cpu.compiling import for_kernels
from ..devices.cpu.kernels.copying import copy_spans
from ..devices.cpu.kernels.knn import scratch_shapes, vote, write_postings
from ..devices.cpu.kernels.logits import ONE_SCALE
from ..errors import ModelFileError
from .weighting import document_frequency

N_NEIGHBORS = 64  # k
# Postings that a query reads, rare features first: 7 microseconds, with the same recall as twice as many
# (docs/decisions/candidates.md).
MAX_POSTINGS = 1 << 12
# Postings that the query of a training row reads, whose candidates are only negatives (docs/decisions/candidates.md).
TRAINING_POSTINGS = MAX_POSTINGS // 2
# Weight of a vote by a label row, relative to other rows (docs/decisions/stacking.md).
LABEL_ROW_VOTES = 3


@dataclass(frozen=True, eq=False)
class KNNIndex:
    """Inverted index of the training rows, and their labels.

    postings : CSR (F, n), the rows that have each feature and its values in them, from rows of norm 1. Y : CSR (n, L),
    labels of the training rows. weight : float32 (n,), weight of each row's vote. scales : factor of the stored values
    of each feature, or of all. In a compact model, indices may be uint16, and values are int8.
    """

    postings: CSR
    Y: CSR
    weight: np.ndarray
    scales: np.ndarray = field(default_factory=lambda: ONE_SCALE)

    @classmethod
    def build(cls, X: CSR, Y: CSR, weight: np.ndarray) -> KNNIndex:
        """Return an index of rows of norm 1, without features that more than `MAX_POSTINGS` rows have.

        It shares no memory with the arguments.
        """
        lengths = document_frequency(X)
        indptr = pointers(np.where(lengths <= MAX_POSTINGS, lengths, 0))
        rows, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        entries = map(for_kernels, (X.indptr, X.indices, X.data))
        write_postings.alone(*entries, 0, indptr, indptr[:-1].copy(), rows, values)
        # Copies, because callers may change their arrays after fit.
        labels = CSR(Y.indptr.copy(), Y.indices.copy(), np.broadcast_to(np.float32(1), Y.nnz), Y.n_cols)
        return cls(CSR(indptr, rows, values, X.n_rows), labels, weight.copy())

    def with_rows(self, X: CSR, Y: CSR, weight: np.ndarray, seen: np.ndarray, device: CPU) -> KNNIndex:
        """Return an index with further rows, which may have more features and labels.

        seen : whether any row of this index has a feature, bool (F,). Such a feature without postings was left out as
        too frequent, and stays out. The device must have been started.
        """
        old, n_known = self.postings, self.Y.n_rows
        sizes, lengths = np.diff(old.indptr), document_frequency(X)
        is_out = (sizes == 0) & seen
        lengths[: len(sizes)] += np.where(is_out, MAX_POSTINGS + 1, sizes)
        indptr = pointers(np.where(lengths <= MAX_POSTINGS, lengths, 0))
        kept = np.where(lengths[: len(sizes)] <= MAX_POSTINGS, sizes, 0)
        rows, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        device.run(copy_spans, old.indptr[:-1], kept, old.indices, old.data, indptr[:-1], rows, values)
        places = indptr[:-1].copy()
        places[: len(kept)] += kept
        write_postings.alone(*map(for_kernels, (X.indptr, X.indices, X.data)), n_known, indptr, places, rows, values)
        n_rows = n_known + X.n_rows
        ends = np.concatenate([self.Y.indptr, self.Y.nnz + Y.indptr[1:]])
        indices = np.concatenate([self.Y.indices, Y.indices])
        labels = CSR(ends, indices, np.broadcast_to(np.float32(1), len(indices)), Y.n_cols)
        return KNNIndex(CSR(indptr, rows, values, n_rows), labels, np.concatenate([self.weight, weight]))

    def frequency(self, n_labels: int) -> np.ndarray:
        """Return the number of rows of weight above 0 that have each label, float32 (n_labels,)."""
        counted = self.Y.indices if self.weight.all() else self.Y.columns_of(np.flatnonzero(self.weight))
        return np.bincount(counted, minlength=n_labels).astype(np.float32)

    def new_labels(self, earlier: KNNIndex) -> np.ndarray:
        """Return whether a label has rows of weight above 0 in this index and none in an earlier one, bool (L,)."""
        n_labels = self.Y.n_cols
        return (earlier.frequency(n_labels) == 0) & (self.frequency(n_labels) > 0)

    def scales_of(self, features: np.ndarray) -> np.ndarray:
        """Return the factors of the stored values of these features."""
        found: np.ndarray = self.scales[np.minimum(features, len(self.scales) - 1)]
        return found

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Return the index in the order of the kernels' arguments."""
        postings, Y = self.postings, self.Y
        return postings.indptr, postings.indices, postings.data, self.scales, Y.indptr, Y.indices, self.weight

    def scratch(self, device: CPU) -> tuple[np.ndarray, ...]:
        """Return scratch arrays of the kernels, with a row for each thread of a started device."""
        shapes = scratch_shapes(self.Y.n_rows, self.Y.n_cols, MAX_POSTINGS, device.n_threads)
        names, kinds = ("votes clean", "votes items", "votes values"), (np.float32, np.int32, np.float32)
        return tuple(map(device.buffer, names, shapes, kinds))

    def votes(self, X: CSR, size: int, device: CPU, own: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """Return the `size` labels with the most votes of each row's neighbors, and their votes, as shares of all.

        These are int32 and float32 (n, size), unordered, padded with -1 and 0. own : if X are training rows, the number
        of the first one; then no row votes for itself, and queries read `TRAINING_POSTINGS`. -1 for other rows.
        """
        budget = MAX_POSTINGS if own < 0 else TRAINING_POSTINGS
        labels, votes = np.empty((X.n_rows, size), np.int32), np.empty((X.n_rows, size), np.float32)
        sound = np.empty(X.n_rows, np.bool_)
        device.run(
            vote, X.indptr, X.indices, X.data, *self.arrays, N_NEIGHBORS, MAX_POSTINGS, budget, own,
            *self.scratch(device), labels, votes, sound,
        )  # fmt: skip
        check_sound(sound)
        return labels, votes


def row_votes(weight: np.ndarray, n_label_rows: int) -> np.ndarray:
    """Return the weights of votes, float32 (n,), given sample weights; the last `n_label_rows` are label rows."""
    votes = weight.copy()
    votes[len(votes) - n_label_rows :] *= LABEL_ROW_VOTES
    return votes


def check_sound(sound: np.ndarray) -> None:
    """Raise `ModelFileError` unless all pointers and indices, which kernels check in compact models, were valid."""
    if not sound.all():
        raise ModelFileError("the model's folder is damaged: a pointer or an index is out of range; copy it again")
