"""Fit stacking to folds of held-out rows and their candidate labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..data.csr import CSR
from ..data.held_out import draw_pairs
from ..devices.cpu import CPU
from ..metrics.propensity import inverse_propensity_of
from .boosted_trees import BoostedTrees, TreePairs
from .exclusion import Exclusion
from .stacking import Inputs, LogisticStacking, MarginCalibration, Stacking, log_losses, meta_features

# Exclusion is used only if the gain in log loss is at least `MIN_Z` standard errors over all candidates, and
# `MIN_Z_RANKED` over the `RANKED` best of each row (docs/decisions/stacking.md). Its weight is at most `MAX_WEIGHT`.
MIN_Z, MIN_Z_RANKED, RANKED, MAX_WEIGHT = 4.0, 2.0, 10, 10.0
# True pairs weigh as much as the inverse propensity of their label to this power, so that of labels that are about as
# probable the rarest ranks first (docs/decisions/stacking.md).
PROPENSITY_POWER = 0.2
BEST = 32  # trees learn from the best candidates of each row; 64 gain at most 0.03 in twice the time


@dataclass(frozen=True, eq=False)
class HeldOutPairs:
    """A fold of held-out rows and their candidate labels, from which stacking learns.

    labels : candidate labels, int32 (n, m), -1 for none. scores : inputs of stacking, (n, m). truth : whether a
    candidate is true, bool (n, m). frequency : label frequencies without the held-out rows, float32 (L,)
    (`frequency_of_learned`). n_rows : number of rows that frequencies are scaled to. groups : groups of the rows, int64
    (n,); None for independent rows. number : number of the fold.
    """

    labels: np.ndarray
    scores: Inputs
    truth: np.ndarray
    frequency: np.ndarray
    n_rows: int
    groups: np.ndarray | None = None
    number: int = 0

    def take(self, rows: np.ndarray) -> HeldOutPairs:
        """Return the pairs of some of the rows."""
        groups = None if self.groups is None else self.groups[rows]
        scores = Inputs(*(each[rows] for each in self.scores))
        return replace(self, labels=self.labels[rows], scores=scores, truth=self.truth[rows], groups=groups)

    @property
    def weights(self) -> np.ndarray:
        """Return the weights of all pairs in the log loss, float64 (n, m); see `PROPENSITY_POWER`."""
        weights = np.ones(self.labels.shape)
        weights[self.truth] = self.weights_of_true(self.labels[self.truth])
        return weights

    def weights_of_true(self, labels: np.ndarray) -> np.ndarray:
        """Return the weights of true pairs of these labels, float64."""
        return inverse_propensity_of(self.frequency[labels], self.n_rows) ** PROPENSITY_POWER

    @property
    def examples(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return inputs of the regression, truth, label frequency and weight of candidates drawn by `draw_pairs`."""
        found = np.flatnonzero(self.labels >= 0)
        drawn, drawn_weights = draw_pairs(self.truth.ravel()[found])
        labels, truth, weights, *scores = (
            each.ravel()[found[drawn]] for each in (self.labels, self.truth, self.weights, *self.scores)
        )
        return meta_features(*scores), truth, self.frequency[labels], drawn_weights * weights

    def best_pairs(self, log_odds: np.ndarray) -> TreePairs:
        """Return the pairs of the best candidates of each row, flattened; log_odds : of all, float32 (n, m)."""
        best = best_columns(self.labels, log_odds, BEST)
        labels, truth, log_odds, weights, *scores = (
            np.take_along_axis(each, best, axis=1)
            for each in (self.labels, self.truth, log_odds, self.weights, *self.scores)
        )
        found = labels >= 0
        inputs = np.stack([*(each[found] for each in scores), self.frequency[labels[found]]], axis=1)
        return TreePairs(inputs, truth[found], log_odds[found], weights[found])

    def calibrated(self, calibration: MarginCalibration) -> HeldOutPairs:
        """Return the pairs with calibrated margins."""
        factor, shift = (each[self.labels] for each in calibration.factors(self.frequency))
        return replace(self, scores=self.scores._replace(margins=factor * self.scores.margins + shift))


class HeldOutScores(NamedTuple):
    """Candidate labels of the held-out rows, int32 (n, m), -1 for none, and their scores, float32 (n, m)."""

    labels: np.ndarray
    scores: np.ndarray


def fit_stacking(
    folds: Sequence[HeldOutPairs], full_frequency: np.ndarray, device: CPU
) -> tuple[Stacking, HeldOutScores]:
    """Return the stacking, and the scores of the pairs of all folds; those of trees are out of sample.

    full_frequency : label frequencies for prediction, float32 (L,). The device must have been started.
    """
    examples = zip(*(fold.examples for fold in folds), strict=True)
    features, truth, frequency, weights = (np.concatenate(each) for each in examples)
    regression, calibration = LogisticStacking.fit_calibrated(features, truth, frequency, weights)
    selection = LogisticStacking.fit_without_margins(features, truth, weights)
    folds = [fold.calibrated(calibration) for fold in folds]
    log_odds = [regression.scores(*fold.scores) for fold in folds]
    trees, scores = fit_trees(folds, log_odds, full_frequency, device)
    labels = np.concatenate([fold.labels for fold in folds])
    return Stacking(regression, calibration, selection, trees), HeldOutScores(labels, np.concatenate(scores))


def fit_trees(
    folds: Sequence[HeldOutPairs], log_odds: Sequence[np.ndarray], full_frequency: np.ndarray, device: CPU
) -> tuple[BoostedTrees | None, Sequence[np.ndarray]]:
    """Fit trees that correct `log_odds`, float32 (n, m) for each fold.

    Return the trees, and the corrected log odds of each half of the rows by trees that were fitted to the other half.
    If the mean gain in log loss of these is not above its standard error, return None and `log_odds`.
    """
    halves = _halves(folds)
    grown = _grow(folds, log_odds, halves, full_frequency, device)
    if grown is None:
        return None, log_odds
    trees, *of_halves = grown
    scores = [odds.copy() for odds in log_odds]
    for half, of_half in enumerate(of_halves):
        for fold, fold_half, odds, out in zip(folds, halves, log_odds, scores, strict=True):
            others, of_fold = fold_half != half, replace(of_half, frequency=fold.frequency)
            other = fold.take(others)
            out[others] = of_fold.corrected(odds[others], other.labels, other.scores, device)
    gain = np.concatenate(
        [
            _gains(fold.labels, fold.truth, fold.weights, odds, out).sum(axis=1)
            for fold, odds, out in zip(folds, log_odds, scores, strict=True)
        ]
    )
    share = _share_to_keep(gain, 1.0)
    if not share:
        return None, log_odds
    scores = [odds + share * (out - odds) for odds, out in zip(log_odds, scores, strict=True)]
    return replace(trees, value=share * trees.value), scores


def fit_exclusion(
    folds: Sequence[HeldOutPairs],
    stacking: Stacking,
    found: HeldOutScores,
    of_folds: Sequence[Exclusion],
    full: Exclusion,
    device: CPU,
) -> tuple[Stacking, HeldOutScores]:
    """Fit the weight of exclusion to held-out rows; return the stacking with it, and the corrected scores.

    The intercept is fitted again, as exclusion only lowers log odds. If log losses do not fall by more than `MIN_Z` and
    `MIN_Z_RANKED` standard errors, return stacking and scores unchanged.

    stacking, found : results of `fit_stacking`. of_folds, full : exclusions of weight 1, counted without the rows of
    each fold, and of all rows. The device must have been started.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    odds = found.scores
    truth, weights = (
        np.concatenate(each) for each in zip(*((fold.truth, fold.weights) for fold in folds), strict=True)
    )
    corrected = [
        each.corrected(part, fold.labels, part, part.shape[1], device)
        for each, part, fold in zip(of_folds, _by_fold(odds, folds), folds, strict=True)
    ]
    lowered, at = np.concatenate(corrected) - odds, found.labels >= 0
    drawn, pair_weights = draw_pairs(truth[at])
    known, low, true = (each[at][drawn] for each in (odds, lowered, truth))
    pair_weights *= weights[at][drawn]

    def loss(learned: np.ndarray) -> tuple[float, np.ndarray]:
        scores = known + learned[0] * low + learned[1]
        wrong = pair_weights * (expit(scores) - true)
        return pair_weights @ log_losses(scores, true), np.array([wrong @ low, wrong.sum()])

    weight, shift = minimize(loss, np.zeros(2), jac=True, bounds=[(0, MAX_WEIGHT), (None, None)]).x
    added = (weight * lowered + shift).astype(np.float32)
    gain = _gains(found.labels, truth, weights, odds, odds + added)
    of_best = np.take_along_axis(gain, best_columns(found.labels, odds, RANKED), axis=1).sum(axis=1)
    share = _share_to_keep(gain.sum(axis=1), MIN_Z)
    if not (share * weight and _share_to_keep(of_best, MIN_Z_RANKED)):
        return stacking, found
    regression = stacking.regression._replace(intercept=stacking.regression.intercept + float(share * shift))
    stacking = stacking._replace(regression=regression, exclusion=replace(full, weight=float(share * weight)))
    return stacking, found._replace(scores=odds + share * added)


def _gains(
    labels: np.ndarray, truth: np.ndarray, weights: np.ndarray, odds: np.ndarray, corrected: np.ndarray
) -> np.ndarray:
    """Return by how much the log loss of each pair falls if its log odds are corrected, 0 for no label; all (n, m)."""
    return np.where(labels >= 0, weights * (log_losses(odds, truth) - log_losses(corrected, truth)), 0)


def _share_to_keep(gain: np.ndarray, least: float) -> np.float32:
    """Return the factor by which to shrink a correction, given its gain on each row.

    With z the mean gain divided by its standard error, the factor is 1 - 1/z^2 (James and Stein 1961), or 0 if z is not
    above `least`.
    """
    mean, error = gain.mean(), gain.std() / np.sqrt(len(gain))
    return np.float32(1 - (error / mean) ** 2 if mean > least * error else 0)


def _halves(folds: Sequence[HeldOutPairs]) -> list[np.ndarray]:
    """Return the half, 0 or 1, of each row of each fold: rows alternate, or groups if there are any."""
    if folds[0].groups is None:
        return [np.arange(len(fold.labels)) % 2 for fold in folds]
    _, numbers = np.unique(np.concatenate([fold.groups for fold in folds]), return_inverse=True)
    return _by_fold(numbers % 2, folds)


def _by_fold(rows: np.ndarray, folds: Sequence[HeldOutPairs]) -> list[np.ndarray]:
    """Split an array over the rows of all folds, in the order of the folds, into one for each fold."""
    return np.split(rows, np.cumsum([len(fold.labels) for fold in folds])[:-1])


def best_columns(labels: np.ndarray, log_odds: np.ndarray, n: int) -> np.ndarray:
    """Return the columns of the n candidates of each row with the highest log odds, both (rows, m), best first.

    Equal ones are in any order.
    """
    return np.argsort(np.where(labels >= 0, -log_odds, np.float32(np.inf)), axis=1)[:, :n]


def _grow(
    folds: Sequence[HeldOutPairs], log_odds: Sequence[np.ndarray], halves: Sequence[np.ndarray], frequency: np.ndarray,
    device: CPU,
) -> list[BoostedTrees] | None:  # fmt: skip
    """Return trees fitted to the best candidates of all rows, of the first half and of the second half.

    Return None if all candidates of a half are true, or none. halves : the half, 0 or 1, of each row of each fold.
    frequency : label frequencies for prediction, float32 (L,).
    """
    pairs = [
        fold.take(half == number).best_pairs(odds[half == number])
        for number in (0, 1)
        for fold, odds, half in zip(folds, log_odds, halves, strict=True)
    ]
    n_first = sum(len(each.truth) for each in pairs[: len(folds)])
    both = TreePairs(*(np.concatenate(each) for each in zip(*pairs, strict=True)))
    n = len(both.truth)
    if any(each.all() or not each.any() for each in (both.truth[:n_first], both.truth[n_first:])):
        return None
    # In this order, two threads have equal work: one learns both halves, the other one all pairs.
    spans = np.array([[0, n_first], [0, n], [n_first, n]])
    first, trees, second = BoostedTrees.fit_spans(both, spans, frequency, device)
    return [trees, first, second]


def frequency_of_learned(Y: CSR, learned: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the number of learned rows with each label, float32 (L,), scaled up to all rows.

    Stacking is trained with frequencies that leave out held-out rows, because counting a row's own labels would leak
    the answer. learned, weight : sample weights with and without zeros for the held-out rows.
    """
    frequency = np.bincount(Y.columns_of(np.flatnonzero(learned)), minlength=Y.n_cols).astype(np.float32)
    frequency *= np.float32(np.count_nonzero(weight) / np.count_nonzero(learned))
    return frequency
