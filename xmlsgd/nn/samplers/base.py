"""What a sampler is: it is asked once a batch, after the hidden layers, so that it may look at the current model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
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
        """Return the marks of the true labels of the batch, bool (L,)."""
        marks = np.zeros(self.Y.n_cols, bool)
        marks[self.Y.row_entries(self.rows)] = True
        return marks


class Drawn(NamedTuple):
    """The labels that a batch trains, int32, ascending, all the true ones among them.

    groups : labels that no row has and that were drawn with one chance, with what their losses weigh: its inverse.
    """

    labels: np.ndarray
    groups: tuple[tuple[np.ndarray, float], ...] = ()

    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all labels, ascending, and the logs of their weights, float32."""
        labels = np.concatenate([self.labels, *(of_group for of_group, _ in self.groups)])
        logs = [np.zeros(len(self.labels)), *(np.full(len(of_group), np.log(w)) for of_group, w in self.groups)]
        order = np.argsort(labels)
        return labels[order], np.concatenate(logs)[order].astype(np.float32)


@dataclass(frozen=True)
class Sampler:
    """Base of all samplers: every label takes part in every batch."""

    def begin(self, Y: CSR, seed: int) -> Sampler:
        """Return the sampler of one learner on training labels Y; one with memory begins with an empty one."""
        return self

    def draw(self, batch: Batch) -> Drawn | None:
        """Return the labels of a batch, the same again for the same seed and model; None for all."""
        return None


ALL_LABELS = Sampler()


def marked(marks: np.ndarray) -> Drawn | None:
    """Return the labels that are marked, bool (L,); None for all where these are nearly all."""
    labels = np.flatnonzero(marks).astype(np.int32)
    return Drawn(labels) if len(labels) < DENSE_SHARE * len(marks) else None
