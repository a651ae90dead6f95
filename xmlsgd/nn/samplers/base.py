"""What a sampler is: it is asked once a batch, after the hidden layers, so that it may look at the current model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...data.csr import CSR
from ...devices.base import Device, Layer

DENSE_SHARE = 0.75  # of the labels: beyond it gathering their weights costs more than training all


class Batch(NamedTuple):
    """What a sampler may look at: labels Y (n, L), the batch's `rows`, its activations A (B, H), the output layer.

    A and `output` lie in the memory of `device`. `seed` names the batch.
    """

    Y: CSR
    rows: np.ndarray
    seed: int
    A: Any
    output: Layer
    device: Device

    def true(self) -> np.ndarray:
        """Return the true labels of the batch, int32, ascending."""
        return np.unique(self.Y.row_entries(self.rows))

    def with_true(self, labels: np.ndarray) -> np.ndarray | None:
        """Return the true labels of the batch and these, int32, ascending; None for all where these are nearly all."""
        found = np.sort(np.concatenate([self.Y.row_entries(self.rows), labels.astype(np.int32, copy=False)]))
        new = np.append(True, found[1:] != found[:-1])[: len(found)]
        found = found[new]  # a tenth of the time of `np.unique`
        return found if len(found) < DENSE_SHARE * self.Y.n_cols else None


@dataclass(frozen=True)
class Sampler:
    """Base of all samplers. A sampler of a registered name is made by `of`, from the number of negatives."""

    @classmethod
    def of(cls, negatives: int) -> Sampler:
        """Return the sampler that draws about so many labels besides those of the batch."""
        return cls(negatives=negatives)  # type: ignore[call-arg]

    def begin(self, Y: CSR, seed: int) -> Sampler:
        """Return the sampler of one learner on training labels Y; one with a state begins with an empty one."""
        return self

    def draw(self, batch: Batch) -> np.ndarray | None:
        """Return the labels of a batch, int32, ascending, all the true ones among them; None for all.

        They are the same again for the same seed and model.
        """
        raise NotImplementedError
