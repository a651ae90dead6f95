"""Thresholds of probabilities, chosen on held-out rows: one for micro F1, one per label for macro F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHOICES = np.arange(1, 100) / 100  # possible thresholds
# Weight of other labels in the F1 of a label, as a number of true pairs. Macro F1 hardly differs between 1 and 10
# (docs/decisions/prediction.md).
PRIOR = 3.0
BLOCK = 1 << 12  # labels that are processed together; their counts at all choices take 3 MB per array


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The least probability of predicted labels. micro : one for all labels. macro : of each label, float64 (L,)."""

    micro: float
    macro: NDArray[np.float64]

    @classmethod
    def fit(
        cls,
        labels: NDArray[np.int32],
        probabilities: NDArray[np.float64],
        truth: NDArray[np.bool_],
        n_true: NDArray[np.int64],
        frequency: NDArray[np.int64],
    ) -> Thresholds:
        """Learn the thresholds on held-out rows.

        The threshold for micro F1 is half of the largest micro F1 on held-out rows. This is optimal for calibrated
        probabilities (Lipton, Elkan, Naryanaswamy 2014), and varies less than the threshold with the largest F1.

        A single label has few held-out rows, and its own best threshold would overfit (Yang 2001). Therefore the F1 of
        a label also counts pairs of labels of a similar frequency, and their F1 also counts pairs of all labels, both
        scaled to `PRIOR` true pairs. The hits of the label itself are those that its probabilities predict. Its
        threshold is half of the largest F1. A label without held-out rows gets the threshold with the largest F1 of
        labels of a similar frequency.

        Parameters
        ----------
        labels, probabilities, truth : ndarray (n,)
            Pairs of a held-out row and a label: the label, its probability, and whether it is true.
        n_true : ndarray (L,)
            Number of held-out rows that have each label, including those without a pair.
        frequency : ndarray (L,)
            Number of training rows of each label.
        """
        # Pairs below the least threshold are never predicted; most pairs are.
        predictable = probabilities >= CHOICES[0]
        labels, probabilities, truth = labels[predictable], probabilities[predictable], truth[predictable]
        n_choices = np.searchsorted(CHOICES, probabilities, side="right")
        curves = _Counts.counted(np.zeros(len(labels), np.int64), n_choices, truth, n_true.sum(keepdims=True))
        octave = np.log2(1 + frequency).astype(np.int64)
        similar = _Counts.counted(octave[labels], n_choices, truth, np.bincount(octave, n_true)).with_prior(curves)
        macro, seen = similar.best()[octave], np.flatnonzero(n_true)
        order = np.argsort(labels, kind="stable")
        sorted_labels, probabilities, n_choices = labels[order], probabilities[order], n_choices[order]
        for first in range(0, len(seen), BLOCK):
            block = seen[first : first + BLOCK]
            pairs = slice(*np.searchsorted(sorted_labels, (block[0], block[-1] + 1)))
            number = np.searchsorted(block, sorted_labels[pairs])
            own = block[number] == sorted_labels[pairs]
            expected = _Counts.counted(number[own], n_choices[pairs][own], probabilities[pairs][own], n_true[block])
            macro[block] = expected.with_prior(similar.of(octave[block])).half_of_best_f1()
        return cls.of(np.concatenate([curves.half_of_best_f1(), macro]))

    @classmethod
    def of(cls, array: NDArray[np.float64]) -> Thresholds:
        """Return the thresholds, given their `array`."""
        return cls(float(array[0]), array[1:])

    @classmethod
    def mean(cls, several: Sequence[Thresholds]) -> Thresholds:
        """Return the thresholds for the mean scores of several models."""
        mean: NDArray[np.float64] = np.mean([each.array for each in several], axis=0)
        return cls.of(mean)

    @property
    def array(self) -> NDArray[np.float64]:
        """The threshold of micro F1, then those of macro F1: float64 (1 + L,)."""
        return np.concatenate([[self.micro], self.macro])

    def extended(self, n_labels: int) -> Thresholds:
        """Return the thresholds with more labels; new labels get that for micro F1."""
        fresh = np.full(n_labels - len(self.macro), self.micro)
        return replace(self, macro=np.concatenate([self.macro, fresh]))


class _Counts(NamedTuple):
    """Counts of pairs, for m groups of labels and each possible threshold.

    hits : pairs that are predicted and true, float64 (m, choices). predicted : predicted pairs, float64 (m, choices).
    true : true pairs, float64 (m, 1).
    """

    hits: NDArray[np.float64]
    predicted: NDArray[np.float64]
    true: NDArray[np.float64]

    @classmethod
    def counted(cls, group: NDArray[np.int64], n_choices: NDArray[np.int64], hits: NDArray, true: NDArray) -> _Counts:
        """Count pairs by their `group` (n,).

        n_choices (n,) : number of choices at which each pair is predicted. hits (n,) : whether, or with which
        probability, it is true.
        """
        shape = len(true), len(CHOICES) + 1
        at = group * shape[1] + n_choices
        counts = (np.bincount(at, weights, shape[0] * shape[1]) for weights in (hits, None))
        n_hits, predicted = (each.reshape(shape)[:, :0:-1].cumsum(axis=1)[:, ::-1].astype(float) for each in counts)
        return cls(n_hits, predicted, np.asarray(true, float)[:, None])

    def with_prior(self, prior: _Counts) -> _Counts:
        """Return these counts plus those of `prior`, scaled to `PRIOR` true pairs."""
        scale = PRIOR / np.maximum(prior.true, 1)
        return _Counts(*(own + scale * other for own, other in zip(self, prior, strict=True)))

    def of(self, groups: NDArray[np.int64]) -> _Counts:
        """Return the counts of some groups."""
        return _Counts(*(each[groups] for each in self))

    @property
    def f1(self) -> NDArray[np.float64]:
        """Return F1 of each group at each choice, float64 (m, choices)."""
        return 2 * self.hits / np.maximum(self.predicted + self.true, 1)

    def best(self) -> NDArray[np.float64]:
        """Return the threshold with the largest F1 of each group, float64 (m,)."""
        return CHOICES[self.f1.argmax(axis=1)]

    def half_of_best_f1(self) -> NDArray[np.float64]:
        """Return the possible threshold nearest to half of the largest F1 of each group, float64 (m,)."""
        return np.maximum(np.rint(50 * self.f1.max(axis=1)), 1) / 100
