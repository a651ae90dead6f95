"""Learning the stacking from held-out rows and their candidate labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..data.csr import CSR
from ..devices.cpu import CPU
from .boosted_trees import BoostedTrees
from .stacking import Inputs, LogisticStacking, Stacking, log_loss, log_losses, meta_features

BEST = 32  # candidates of a row from which trees learn: all of them give the same accuracy in twice the time


@dataclass(frozen=True, eq=False)
class HeldOutPairs:
    """Held-out rows and their candidate labels: what stacking is learned from.

    labels : int32 (n, m), -1 for none. scores : the inputs of the stacking, (n, m). truth : bool (n, m), whether a
    candidate is true. frequency : float32 (L,), rows with each label without the held-out ones (`label_frequencies`).
    """

    labels: np.ndarray
    scores: Inputs
    truth: np.ndarray
    frequency: np.ndarray

    def take(self, rows: np.ndarray) -> HeldOutPairs:
        """Return the pairs of some of the rows."""
        logits, votes, margins, cooccurrence = (each[rows] for each in self.scores)
        return replace(
            self, labels=self.labels[rows], scores=(logits, votes, margins, cooccurrence), truth=self.truth[rows]
        )

    def with_margins(self, margins: np.ndarray) -> HeldOutPairs:
        """Return the pairs with other margins, float32 (n, m)."""
        logits, votes, _, cooccurrence = self.scores
        return replace(self, scores=(logits, votes, margins, cooccurrence))

    @property
    def examples(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the inputs of the regression, truth and label frequency of all candidates, one after another."""
        found = self.labels >= 0
        return meta_features(*self.scores)[found], self.truth[found], self.frequency[self.labels[found]]


class HeldOutScores(NamedTuple):
    """Candidate labels of the held-out rows, int32, -1 for none, and their scores, float32, both (n, m)."""

    labels: np.ndarray
    scores: np.ndarray


def label_rows_help(pairs: HeldOutPairs, margins_without: np.ndarray) -> bool:
    """Return whether the log loss is no lower with the margins of classifiers without label rows, float32 (n, m)."""
    return not log_loss(*pairs.with_margins(margins_without).examples) < log_loss(*pairs.examples)


def fit_stacking(pairs: HeldOutPairs, full_frequency: np.ndarray, device: CPU) -> tuple[Stacking, HeldOutScores]:
    """Return the meta-learners and the scores of the pairs, out of fold where there are trees.

    full_frequency : float32 (L,), frequencies for prediction. The device is started.
    """
    regression, calibration = LogisticStacking.fit_calibrated(*pairs.examples)
    factor, shift = (each[pairs.labels] for each in calibration.factors(pairs.frequency))
    pairs = pairs.with_margins(factor * pairs.scores[2] + shift)
    trees, scores = fit_trees(pairs, regression.scores(*pairs.scores), full_frequency, device)
    return Stacking(regression, calibration, trees), HeldOutScores(pairs.labels, scores)


def fit_trees(
    pairs: HeldOutPairs, log_odds: np.ndarray, full_frequency: np.ndarray, device: CPU
) -> tuple[BoostedTrees | None, np.ndarray]:
    """Fit trees that add to `log_odds`, float32 (n, m), and return them with out-of-fold scores of two folds, (n, m).

    Return None and `log_odds` unless the out-of-fold gain in log loss exceeds its standard error.
    """
    second, scores = np.arange(len(log_odds)) % 2 == 1, log_odds.copy()
    for fold in (second, ~second):
        trees, other = _grow(pairs.take(fold), log_odds[fold], pairs.frequency), pairs.take(~fold)
        if trees is None:
            return None, log_odds
        scores[~fold] = trees.corrected(log_odds[~fold], other.labels, *other.scores, device)
    gain = np.where(pairs.labels >= 0, log_losses(log_odds, pairs.truth) - log_losses(scores, pairs.truth), 0)
    of_rows = gain.sum(axis=1)
    if not of_rows.mean() > of_rows.std() / np.sqrt(len(of_rows)):
        return None, log_odds
    return _grow(pairs, log_odds, full_frequency), scores


def _grow(pairs: HeldOutPairs, log_odds: np.ndarray, frequency: np.ndarray) -> BoostedTrees | None:
    """Return trees learned from the candidates of each row with the highest log odds, None for one class.

    frequency : float32 (L,), of the labels in prediction.
    """
    best = np.argsort(np.where(pairs.labels >= 0, -log_odds, np.inf), axis=1, kind="stable")[:, :BEST]
    labels, truth, log_odds, *scores = (
        np.take_along_axis(each, best, axis=1) for each in (pairs.labels, pairs.truth, log_odds, *pairs.scores)
    )
    found = labels >= 0
    if not truth.any() or truth[found].all():
        return None
    features = np.stack([*(each[found] for each in scores), pairs.frequency[labels[found]]], axis=1)
    return BoostedTrees.fit(features, truth[found], log_odds[found], frequency)


def label_frequencies(Y: CSR, learned: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of rows with each label, float32 (L,): for training the stacking, and for prediction.

    learned, weight : sample weights without and with the held-out rows. Stacking is trained with frequencies that leave
    out the held-out rows, scaled up, because counting a row's own label would leak the answer.
    """
    train_frequency, full_frequency = (
        np.bincount(Y.row_entries(np.flatnonzero(each)), minlength=Y.n_cols).astype(np.float32)
        for each in (learned, weight)
    )
    train_frequency *= np.float32(np.count_nonzero(weight) / np.count_nonzero(learned))
    return train_frequency, full_frequency
