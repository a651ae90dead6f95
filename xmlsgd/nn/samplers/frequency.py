"""Negatives drawn by the frequency of their labels, with weights that keep gradients unbiased."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...data.csr import NEGATIVES
from ...data.validation import check_field_types
from ...errors import DataError, shorten
from .base import Batch, Drawn, Sampler, check_least, marked

if TYPE_CHECKING:
    from ...data.csr import CSR

RAREST = 10  # halvings of the chance at most, so that no weight is above about a thousand times the least


@dataclass(frozen=True)
class FrequencyNegatives(Sampler):
    """The true labels of the batch and about `negatives` others, whose losses weigh the inverse of their chance.

    Every pair of a row and a label counts once in the mean over draws, so the gradient is unbiased for losses that are
    sums over labels; with softmax, logits are raised by the log of the weight instead (Bengio and Senecal 2008), which
    is unbiased for many negatives only. power : the chance of a label is proportional to its frequency to this power:
    0 for the same for all, 0.75 as word2vec has it (Mikolov et al. 2013), 1 for its frequency; halved as often as comes
    next, so that few weights differ. It must be in [0, 1].
    """

    negatives: int = 1024
    power: float = 0.75

    def __post_init__(self) -> None:
        """Raise `DataError` for what is no number, less than one negative, or a power outside [0, 1]."""
        check_field_types(self)
        check_least(negatives=(self.negatives, 1))
        if not 0 <= self.power <= 1:
            raise DataError(f"power must be in [0, 1], got {shorten(self.power)}")

    def begin(self, Y: CSR, seed: int) -> Strata:
        """Return this sampler with the chances of the labels of Y."""
        halvings = self._halvings(Y)
        counts = np.bincount(halvings)
        chances = np.minimum(highest_chance(counts, self.negatives) * 0.5 ** np.arange(len(counts)), 1.0)
        used = np.flatnonzero(counts)
        return Strata(tuple((np.flatnonzero(halvings == h).astype(np.int32), float(chances[h])) for h in used))

    def _halvings(self, Y: CSR) -> np.ndarray:
        """Return how often the chance of each label is half that of the most frequent one."""
        frequency = Y.column_counts() + 1.0
        halvings = np.rint(self.power * np.log2(frequency.max() / frequency))
        return np.minimum(halvings, RAREST).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Strata(Sampler):
    """Labels int32 by their chance of being drawn, in (0, 1], each for itself."""

    strata: tuple[tuple[np.ndarray, float], ...]

    def draw(self, batch: Batch) -> Drawn | None:
        """Return true labels, those that always take part, and a group for each other chance."""
        rng, marks, groups = np.random.default_rng((batch.seed, NEGATIVES)), batch.true(), []
        true = marks.copy()
        for labels, chance in self.strata:
            if chance == 1:
                marks[labels] = True
                continue
            # As many as if each label were asked for itself, without asking every label.
            n = rng.binomial(len(labels), chance)
            drawn = labels[rng.choice(len(labels), n, replace=False, shuffle=False)]
            drawn = np.sort(drawn[~true[drawn]])
            if len(drawn):
                groups.append((drawn, 1 / chance))
        certain = marked(marks)
        return None if certain is None else certain._replace(groups=tuple(groups))


def highest_chance(counts: np.ndarray, negatives: int) -> float:
    """Return c for which labels with chances min(c / 2^h, 1), `counts[h]` of them, are `negatives` in the mean."""
    shares = 0.5 ** np.arange(len(counts))
    for certain in range(len(counts)):  # the first strata, as many as have the chance 1
        c = (negatives - counts[:certain].sum()) / (counts * shares)[certain:].sum()
        if c * shares[certain] <= 1:
            return float(c)
    return float(2.0 ** len(counts))


SAMPLER = FrequencyNegatives
