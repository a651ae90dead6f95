"""The base class of samplers. A sampler is called once per batch, after the hidden layers, and may use the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...data.csr import CSR, pointers
from ...devices.base import Device, Layer
from ...errors import DataError, shorten

DENSE_SHARE = 0.75  # from this share of labels on, gathering their weights costs more than training all


class Batch(NamedTuple):
    """The arguments of a sampler.

    Y : labels (n, L) of all rows. rows : numbers of the batch's rows. seed : of the batch. A : activations (B, H).
    output : the output layer. A and output are in the memory of `device`.
    """

    Y: CSR
    rows: np.ndarray
    seed: int
    A: Any
    output: Layer
    device: Device

    def true(self) -> np.ndarray:
        """Return the true labels of the batch, int32, ascending."""
        return np.unique(self.Y.columns_of(self.rows))

    def with_true(self, labels: np.ndarray) -> np.ndarray | None:
        """Return the true labels of the batch and `labels`, int32, ascending; None if they are nearly all labels."""
        found = np.sort(np.concatenate([self.Y.columns_of(self.rows), labels.astype(np.int32, copy=False)]))
        new = np.append(True, found[1:] != found[:-1])[: len(found)]
        found = found[new]  # a tenth of the time of `np.unique`
        return found if len(found) < DENSE_SHARE * self.Y.n_cols else None

    def check(self, labels: np.ndarray) -> None:
        """Raise `DataError` unless drawn labels are int32, ascending and in [0, L); kernels check no bounds."""
        n_labels, fits = self.Y.n_cols, isinstance(labels, np.ndarray) and labels.dtype == np.int32 and labels.ndim == 1
        if fits and len(labels):
            fits = labels[0] >= 0 and labels[-1] < n_labels and (labels[1:] > labels[:-1]).all()
        if not fits:
            text = f"sampler: must draw ascending int32 labels in [0, {n_labels}), or None for all"
            raise DataError(f"{text}, got {shorten(labels)}")


@dataclass(frozen=True)
class Sampler:
    """Base of all samplers. `of` makes the sampler of a registered name, given the number of negatives."""

    @classmethod
    def of(cls, negatives: int) -> Sampler:
        """Return a sampler that draws about so many labels besides those of the batch."""
        return cls(negatives=negatives)  # type: ignore[call-arg]

    def begin(self, Y: CSR, seed: int) -> Sampler:
        """Return the sampler for one learner with training labels Y; a sampler with state begins with an empty one."""
        return self

    def draw(self, batch: Batch) -> np.ndarray | None:
        """Return the labels of a batch, int32, ascending, with all its true labels; None for all labels.

        The same seed and model must give the same labels.
        """
        raise NotImplementedError


def true_among(Y: CSR, rows: np.ndarray, drawn: np.ndarray) -> CSR:
    """Return the labels of a batch, with positions in `drawn` (ascending) as indices.

    Raises `DataError` if a label of the batch was not drawn.
    """
    entries, indptr = Y.positions_of(rows), pointers(Y.indptr[rows + 1] - Y.indptr[rows])
    true = Y.indices[entries]
    places = np.searchsorted(drawn, true).astype(np.int32)
    found = np.append(drawn, -1)[places] == true  # behind the last one there is none
    if not found.all():
        text = "labels that a sampler draws must include all true labels of the batch"
        raise DataError(f"{text}, but label {true[found.argmin()]} is missing")
    return CSR(indptr, places, Y.data[entries], len(drawn))
