"""What a sampler is: it is asked once a batch, after the hidden layers, so that it may look at the current model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...data.validation import check_field_types
from ...errors import DataError, shorten

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
    """Base of all samplers. A sampler of a registered name is made by `of`, from the number of negatives."""

    @classmethod
    def of(cls, negatives: int) -> Sampler:
        """Return the sampler that draws about so many labels besides those of the batch."""
        return cls(negatives=negatives)  # type: ignore[call-arg]

    def begin(self, Y: CSR, seed: int) -> Sampler:
        """Return the sampler of one learner on training labels Y; one with a state begins with an empty one."""
        return self

    def draw(self, batch: Batch) -> Drawn | None:
        """Return the labels of a batch, the same again for the same seed and model; None for all."""
        raise NotImplementedError


@dataclass(frozen=True)
class Refresh:
    """Refresh number t, from 1, comes after sum_{i < t} first e^(growth i) batches (Chen et al. 2020, section 4.2).

    An index of the labels is made anew often in the beginning, when weights move fast, ever more seldom later.
    first : batches before the first one, at least 1. growth : at least 0.
    """

    first: int = 50
    growth: float = 0.1

    def __post_init__(self) -> None:
        """Raise `DataError` for what is no number, and numbers outside their range."""
        check_field_types(self)
        if not self.first >= 1 or not 0 <= self.growth < math.inf:
            raise DataError(
                f"refresh: first must be at least 1 and growth at least 0, got {shorten((self.first, self.growth))}"
            )

    def batches(self, t: int) -> int:
        """Return how many batches lie before refresh number t, rounded."""
        rate = math.expm1(self.growth)
        return round(self.first * (math.expm1(self.growth * t) / rate if rate else t))


class Turns:
    """Counts the batches of a learner and says before which of them a refresh is due; before the first one is."""

    def __init__(self, refresh: Refresh) -> None:
        self._refresh, self._batches, self._refreshes = refresh, 0, 0

    def due(self) -> bool:
        """Count a batch; return whether a refresh goes before it."""
        due = self._batches >= self._refresh.batches(self._refreshes)
        self._batches += 1
        self._refreshes += due
        return due


def check_least(**numbers: tuple[float, float]) -> None:
    """Raise `DataError` for the first number that is below the least beside it."""
    for name, (number, least) in numbers.items():
        if not number >= least:
            raise DataError(f"{name} must be at least {least}, got {shorten(number)}")


def marked(marks: np.ndarray) -> Drawn | None:
    """Return the labels that are marked, bool (L,); None for all where these are nearly all."""
    labels = np.flatnonzero(marks).astype(np.int32)
    return Drawn(labels) if len(labels) < DENSE_SHARE * len(marks) else None
