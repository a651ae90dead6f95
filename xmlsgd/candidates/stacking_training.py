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
# `MIN_Z_RANKED` over the `RANKED` best of each row, which users see (docs/decisions/stacking.md).
MIN_Z, MIN_Z_RANKED, RANKED = 4.0, 2.0, 10
MAX_EXCLUSION_WEIGHT = 10.0  # if no excluded label is true, the log loss falls without end
# True pairs weigh as much as the inverse propensity of their label to this power, so that of labels that are about as
# probable the rarest ranks first (docs/decisions/stacking.md).
PROPENSITY_POWER = 0.2
BEST = 32  # trees learn from the best candidates of each row; 64 gain at most 0.03 in twice the time


@dataclass(frozen=True, eq=False)
class HeldOutPairs:
    """Held-out rows and their candidate labels, from which stacking learns.

    labels : candidate labels, int32 (n, m), -1 for none. inputs : of stacking, (n, m). truth : whether a
    candidate is true, bool (n, m). fold : number of each row's fold, int32 (n,), ascending. frequency : label
    frequencies without the rows of each fold, float32 (folds, L) (`frequency_of_learned`). n_rows : number of rows that
    frequencies are scaled to. groups : groups of the rows, int64 (n,); None for independent rows.
    """

    labels: np.ndarray
    inputs: Inputs
    truth: np.ndarray
    fold: np.ndarray
    frequency: np.ndarray
    n_rows: int
    groups: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> HeldOutPairs:
        """Return the pairs of some of the rows."""
        groups = None if self.groups is None else self.groups[rows]
        labels, truth, fold, *inputs = (each[rows] for each in (self.labels, self.truth, self.fold, *self.inputs))
        return replace(self, labels=labels, inputs=Inputs(*inputs), truth=truth, fold=fold, groups=groups)

    @property
    def label_frequency(self) -> np.ndarray:
        """Return the frequency of each candidate, float32 (n, m), without the rows of its row's fold; any for none."""
        return self.frequency[self.fold[:, None], self.labels]

    @property
    def weights(self) -> np.ndarray:
        """Return the weights of all pairs in the log loss, float64 (n, m); see `PROPENSITY_POWER`."""
        weights = np.ones(self.labels.shape)
        weights[self.truth] = weights_of_true(self.label_frequency[self.truth], self.n_rows)
        return weights

    @property
    def examples(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return inputs of the regression, truth, label frequency and weight of candidates drawn by `draw_pairs`."""
        drawn, drawn_weights = [], []
        for fold in np.unique(self.fold):
            found = np.flatnonzero((self.labels >= 0) & (self.fold == fold)[:, None])
            chosen, weights = draw_pairs(self.truth.ravel()[found])
            drawn.append(found[chosen])
            drawn_weights.append(weights)
        frequency, truth, weights, *inputs = (
            each.ravel()[np.concatenate(drawn)]
            for each in (self.label_frequency, self.truth, self.weights, *self.inputs)
        )
        return meta_features(*inputs), truth, frequency, np.concatenate(drawn_weights) * weights

    def best_pairs(self, log_odds: np.ndarray) -> TreePairs:
        """Return the pairs of the best candidates of each row, flattened; log_odds : of all, float32 (n, m)."""
        best = best_columns(self.labels, log_odds, BEST)
        labels, truth, log_odds, weights, *inputs = (
            np.take_along_axis(each, best, axis=1)
            for each in (self.labels, self.truth, log_odds, self.weights, *self.inputs, self.label_frequency)
        )
        found = labels >= 0
        inputs = np.stack([each[found] for each in inputs], axis=1)
        return TreePairs(inputs, truth[found], log_odds[found], weights[found])

    def calibrated(self, calibration: MarginCalibration) -> HeldOutPairs:
        """Return the pairs with calibrated margins."""
        factor, shift = calibration.factor_and_shift(self.label_frequency)
        return replace(self, inputs=self.inputs._replace(margins=factor * self.inputs.margins + shift))


class HeldOutScores(NamedTuple):
    """Candidate labels of the held-out rows, int32 (n, m), -1 for none, and their log odds, float32 (n, m)."""

    labels: np.ndarray
    log_odds: np.ndarray


def fit_stacking(pairs: HeldOutPairs, full_frequency: np.ndarray, device: CPU) -> tuple[Stacking, np.ndarray]:
    """Return the stacking, and the log odds of the pairs, float32 (n, m); those of trees are out of sample.

    full_frequency : label frequencies for prediction, float32 (L,). The device must have been started.
    """
    features, truth, frequency, weights = pairs.examples
    regression, calibration = LogisticStacking.fit_calibrated(features, truth, frequency, weights)
    selection = LogisticStacking.fit_without_margins(features, truth, weights)
    pairs = pairs.calibrated(calibration)
    trees, log_odds = fit_trees(pairs, regression.scores(*pairs.inputs), full_frequency, device)
    return Stacking(regression, calibration, selection, trees), log_odds


def fit_trees(
    pairs: HeldOutPairs, log_odds: np.ndarray, full_frequency: np.ndarray, device: CPU
) -> tuple[BoostedTrees | None, np.ndarray]:
    """Fit trees that correct `log_odds`, float32 (n, m).

    Return the trees, and the corrected log odds of each half of the rows by trees that were fitted to the other half.
    If the mean gain in log loss of these is not above its standard error, return None and `log_odds`.
    """
    halves = _halves(pairs)
    grown = _grow(pairs, log_odds, halves, full_frequency, device)
    if grown is None:
        return None, log_odds
    trees, *of_halves = grown
    corrected = log_odds.copy()
    for half, of_half in enumerate(of_halves):
        others = halves != half
        part, in_folds = pairs.take(others), replace(of_half, frequency=pairs.frequency.ravel())
        # In each fold, a label has another frequency: fold f counts it as label f L + l.
        labels = np.where(part.labels >= 0, part.labels + part.fold[:, None] * pairs.frequency.shape[1], np.int32(-1))
        corrected[others] = in_folds.corrected(log_odds[others], labels, part.inputs, device)
    share = _share_to_keep(_gains(pairs, log_odds, corrected).sum(axis=1), 1.0)
    if not share:
        return None, log_odds
    return replace(trees, value=share * trees.value), log_odds + share * (corrected - log_odds)


def fit_exclusion(
    pairs: HeldOutPairs,
    stacking: Stacking,
    log_odds: np.ndarray,
    of_folds: Sequence[Exclusion],
    full: Exclusion,
    device: CPU,
) -> tuple[Stacking, np.ndarray]:
    """Fit the weight of exclusion to held-out rows; return the stacking with it, and the corrected log odds.

    The intercept is fitted again, as exclusion only lowers log odds. If log losses do not fall by more than `MIN_Z` and
    `MIN_Z_RANKED` standard errors, return both unchanged.

    stacking, log_odds : results of `fit_stacking`. of_folds, full : exclusions of weight 1, counted without the rows of
    each fold, by its number, and of all rows. The device must have been started.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    lowered, at = np.zeros_like(log_odds), pairs.labels >= 0
    for fold in np.unique(pairs.fold):
        rows = pairs.fold == fold
        part, labels = log_odds[rows], pairs.labels[rows]
        lowered[rows] = of_folds[fold].corrected(part, labels, part, part.shape[1], device) - part
    drawn, pair_weights = draw_pairs(pairs.truth[at])
    known, low, true, weights = (each[at][drawn] for each in (log_odds, lowered, pairs.truth, pairs.weights))
    pair_weights *= weights

    def loss(learned: np.ndarray) -> tuple[float, np.ndarray]:
        moved = known + learned[0] * low + learned[1]
        wrong = pair_weights * (expit(moved) - true)
        return pair_weights @ log_losses(moved, true), np.array([wrong @ low, wrong.sum()])

    weight, shift = minimize(loss, np.zeros(2), jac=True, bounds=[(0, MAX_EXCLUSION_WEIGHT), (None, None)]).x
    added = (weight * lowered + shift).astype(np.float32)
    gain = _gains(pairs, log_odds, log_odds + added)
    of_best = np.take_along_axis(gain, best_columns(pairs.labels, log_odds, RANKED), axis=1).sum(axis=1)
    share = _share_to_keep(gain.sum(axis=1), MIN_Z)
    if not (share * weight and _share_to_keep(of_best, MIN_Z_RANKED)):
        return stacking, log_odds
    regression = stacking.regression._replace(intercept=stacking.regression.intercept + float(share * shift))
    stacking = stacking._replace(regression=regression, exclusion=replace(full, weight=float(share * weight)))
    return stacking, log_odds + share * added


def weights_of_true(frequency: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the weights of true pairs, float64, given the frequencies of their labels among `n_rows` rows."""
    return inverse_propensity_of(frequency, n_rows) ** PROPENSITY_POWER


def _gains(pairs: HeldOutPairs, log_odds: np.ndarray, corrected: np.ndarray) -> np.ndarray:
    """Return by how much the log loss of each pair falls if its log odds are corrected, 0 for no label; all (n, m)."""
    gains = pairs.weights * (log_losses(log_odds, pairs.truth) - log_losses(corrected, pairs.truth))
    return np.where(pairs.labels >= 0, gains, 0)


def _share_to_keep(gain: np.ndarray, least: float) -> np.float32:
    """Return the factor by which to shrink a correction, given its gain on each row.

    With z the mean gain divided by its standard error, the factor is 1 - 1/z^2 (James and Stein 1961), or 0 if z is not
    above `least`.
    """
    mean, error = gain.mean(), gain.std() / np.sqrt(len(gain))
    return np.float32(1 - (error / mean) ** 2 if mean > least * error else 0)


def _halves(pairs: HeldOutPairs) -> np.ndarray:
    """Return the half, 0 or 1, of each row: the rows of a fold alternate, or groups if there are any."""
    if pairs.groups is None:
        return (np.arange(len(pairs.fold)) - np.searchsorted(pairs.fold, pairs.fold)) % 2
    _, numbers = np.unique(pairs.groups, return_inverse=True)
    return numbers % 2


def best_columns(labels: np.ndarray, log_odds: np.ndarray, n: int) -> np.ndarray:
    """Return the columns of the n candidates of each row with the highest log odds, both (rows, m), best first.

    Equal ones are in any order.
    """
    return np.argsort(np.where(labels >= 0, -log_odds, np.float32(np.inf)), axis=1)[:, :n]


def _grow(
    pairs: HeldOutPairs, log_odds: np.ndarray, halves: np.ndarray, frequency: np.ndarray, device: CPU
) -> list[BoostedTrees] | None:
    """Return trees fitted to the best candidates of all rows, of the first half and of the second half.

    Return None if all candidates of a half are true, or none. halves : the half, 0 or 1, of each row.
    frequency : label frequencies for prediction, float32 (L,).
    """
    of_halves = [pairs.take(halves == half).best_pairs(log_odds[halves == half]) for half in (0, 1)]
    both = TreePairs(*map(np.concatenate, zip(*of_halves, strict=True)))
    n_first, n = len(of_halves[0].truth), len(both.truth)
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
