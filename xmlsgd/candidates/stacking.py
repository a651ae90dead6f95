"""Stacking: scores of candidates from those of the base models, by logistic regression, trees and exclusion.

Scores are log odds among held-out pairs, of which true ones weigh more the rarer their label is (`HeldOutPairs`).
`BetaCalibration` turns them into the log odds that labels are true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..devices.cpu import CPU
from .boosted_trees import BoostedTrees
from .exclusion import Exclusion

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

# Smaller values are replaced by these, so that their logarithms are finite. Many true labels are proposed by
# co-occurrence alone and have no votes: with a tenth of this MIN_VOTE, votes would get a small weight
# (docs/decisions/stacking.md).
MIN_VOTE, MIN_COOCCURRENCE = np.float32(1e-2), np.float32(1e-5)
MIN_NETWORK = 1e-3  # least weight of the network, which alone ranks labels that are not candidates


class Inputs(NamedTuple):
    """The scores of the base models for pairs of a row and a label, float32 arrays of the same shape.

    logits : logits of the network. votes : shares of the neighbors' votes. margins : margins of the linear classifiers.
    cooccurrence : co-occurrence.
    """

    logits: np.ndarray
    votes: np.ndarray
    margins: np.ndarray
    cooccurrence: np.ndarray


N_MODELS = len(Inputs._fields)  # base models


class MarginCalibration(NamedTuple):
    """Corrects a margin m by the frequency of its label to (1 + slope x) m + shift x, with x = log(1 + rows) - mean."""

    slope: float = 0.0
    shift: float = 0.0
    mean: float = 0.0

    def factor_and_shift(self, frequency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the factor of each label's margin, at least 0, and the term to add, both float32 (L,)."""
        x = np.log1p(frequency) - np.float32(self.mean)
        return np.maximum(1 + np.float32(self.slope) * x, 0), np.float32(self.shift) * x


class LogisticStacking(NamedTuple):
    """Weights of a logistic regression, whose log odds are the following sum.

    network * log P(network) + neighbors * log(share of votes) + linear * margin + cooccurrence * log(co-occurrence)
    + intercept

    The defaults were learned on two data sets; they are used if too few rows can be held out.
    """

    network: float = 0.3
    neighbors: float = 0.5
    linear: float = 2.1
    cooccurrence: float = 0.15
    intercept: float = 1.7

    @classmethod
    def fit(cls, features: np.ndarray, truth: np.ndarray, pair_weights: np.ndarray | None = None) -> LogisticStacking:
        """Fit the weights, at least 0, to `truth`, bool (n,), and `features`, float32 (n, 4), of `meta_features`.

        pair_weights : weights of the pairs, (n,); None for ones. A feature whose weight would be negative is left out,
        and the others are fitted again without it.
        """
        if truth.all() or not truth.any():
            return cls()
        *weights, intercept = _nonnegative_weights(features, truth, pair_weights)
        return cls._bounded(weights, intercept)

    @classmethod
    def _bounded(cls, weights: list[float], intercept: float) -> LogisticStacking:
        """Return the weights without negative ones, and with at least `MIN_NETWORK` for the network."""
        network, neighbors, linear, cooccurrence = (max(each, 0.0) for each in weights)
        return cls(max(network, MIN_NETWORK), neighbors, linear, cooccurrence, intercept)

    @classmethod
    def fit_calibrated(
        cls, features: np.ndarray, truth: np.ndarray, frequency: np.ndarray, pair_weights: np.ndarray | None = None
    ) -> tuple[LogisticStacking, MarginCalibration]:
        """Fit weights for calibrated margins, and the calibration; return both.

        frequency : frequency of the label of each pair, float32 (n,). pair_weights : as in `fit`. Margins stay
        uncalibrated if the linear classifiers would get no positive weight besides the frequency.
        """
        if truth.all() or not truth.any():
            return cls(), MarginCalibration()
        mean = float(np.log1p(frequency).mean())
        columns = _with_frequency(features, frequency, mean)
        *weights, shift, slope, intercept = _nonnegative_weights(columns, truth, pair_weights)
        linear = weights[2]
        if linear <= 0:
            return cls.fit(features, truth, pair_weights), MarginCalibration()
        return cls._bounded(weights, intercept), MarginCalibration(slope / linear, shift / linear, mean)

    @classmethod
    def fit_without_margins(
        cls, features: np.ndarray, truth: np.ndarray, pair_weights: np.ndarray | None = None
    ) -> LogisticStacking:
        """Fit the weights as `fit` does, but 0 for margins."""
        others = features.copy()
        others[:, 2] = 0
        return cls.fit(others, truth, pair_weights)._replace(linear=0.0)

    def scores(
        self, logits: np.ndarray, votes: np.ndarray, margins: np.ndarray, cooccurrence: np.ndarray
    ) -> np.ndarray:
        """Return the log odds, float32, of pairs of a row and a label; all arrays have the same shape."""
        network, neighbors, linear, weight, intercept = (np.float32(value) for value in self)
        found = weight * _log(cooccurrence, MIN_COOCCURRENCE) + intercept
        without_network = neighbors * _log(votes, MIN_VOTE) + linear * margins + found
        return network * log_probability(logits) + without_network


class Stacking(NamedTuple):
    """The meta-learner: a regression, whose margins are calibrated, and two corrections of its log odds.

    selection : a regression without margins, which selects the candidates that get margins and trees. trees : correct
    the log odds of each label by itself; None for no correction. exclusion : then corrects those of labels that rarely
    occur together; None for no correction.
    """

    regression: LogisticStacking
    calibration: MarginCalibration
    selection: LogisticStacking = LogisticStacking(linear=0.0)
    trees: BoostedTrees | None = None
    exclusion: Exclusion | None = None

    def scores(self, labels: np.ndarray, inputs: Inputs, n_excluding: int, device: CPU) -> np.ndarray:
        """Return the log odds, float32 (n, M), of all candidates of each row, int32 (n, M), given their inputs.

        Margins must be calibrated. The `n_excluding` candidates that `selection` ranks highest exclude others.
        """
        log_odds = self.regression.scores(*inputs)
        with device.start():
            if self.trees is not None:
                log_odds = self.trees.corrected(log_odds, labels, inputs, device)
            if self.exclusion is not None:
                first = self.selection.scores(*inputs)
                log_odds = self.exclusion.corrected(log_odds, labels, first, n_excluding, device)
        return log_odds


def fitted_log_losses_of_margins(margins: np.ndarray, truth: np.ndarray, frequency: np.ndarray) -> np.ndarray:
    """Return the log losses of a regression on margins, float32 (n,), log label frequency and their product.

    The regression is fitted to these pairs. C must stay, as thresholds for differences of losses were chosen with it.
    """
    if truth.all() or not truth.any():
        return np.zeros(len(truth))
    logs = np.log1p(frequency)
    columns = np.stack([margins, logs, logs * margins], axis=1)
    return log_losses(_regression(columns, truth, C=10.0).decision_function(columns), truth)


def log_losses(log_odds: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the log loss of each pair, given its log odds and whether it is true, arrays of the same shape."""
    losses: np.ndarray = np.logaddexp(0, np.where(truth, -log_odds, log_odds))
    return losses


def _with_frequency(features: np.ndarray, frequency: np.ndarray, mean: float) -> np.ndarray:
    """Return the features of pairs with two more: log label frequency minus `mean`, and its product with the margin."""
    logs = np.log1p(frequency) - np.float32(mean)
    return np.concatenate([features, np.stack([logs, logs * features[:, 2]], axis=1)], axis=1)


def _nonnegative_weights(features: np.ndarray, truth: np.ndarray, pair_weights: np.ndarray | None) -> list[float]:
    """Fit a regression without negative weights of base models; return the weights and the intercept.

    The first features are those of the base models. A base model whose weight would be negative is left out, and the
    others are fitted again without it. Only the weight of the last one left may be negative.
    """
    weights, used = np.zeros(features.shape[1]), np.arange(features.shape[1])
    found = _regression(features, truth, pair_weights)
    while (n := np.count_nonzero(used < N_MODELS)) > 1 and found.coef_[0, :n].min() < 0:
        used = np.delete(used, found.coef_[0, :n].argmin())
        found = _regression(features[:, used], truth, pair_weights)
    weights[used] = found.coef_[0]
    return [*weights.tolist(), float(found.intercept_[0])]


def _regression(
    features: np.ndarray, truth: np.ndarray, pair_weights: np.ndarray | None = None, C: float = 100.0
) -> LogisticRegression:
    """Fit a logistic regression with little regularization by Newton steps, as there are many pairs and few weights.

    Margins vary little, so that their weight is large; a smaller C would shrink it (docs/decisions/stacking.md). The
    fit is in float64, because in float32 the Hessian is singular if a feature is the same for all pairs.
    """
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=C, solver="newton-cholesky")
    return regression.fit(features.astype(np.float64), truth, pair_weights)


def meta_features(logits: np.ndarray, votes: np.ndarray, margins: np.ndarray, cooccurrence: np.ndarray) -> np.ndarray:
    """Return the inputs of the logistic regression, float32 (..., 4), for pairs of a row and a label."""
    logs = _log(votes, MIN_VOTE), _log(cooccurrence, MIN_COOCCURRENCE)
    return np.stack([log_probability(logits), logs[0], margins, logs[1]], axis=-1)


def log_probability(logits: np.ndarray) -> np.ndarray:
    """Return log(1 / (1 + exp(-z))), float32."""
    return -np.logaddexp(np.float32(0), -logits)


def _log(values: np.ndarray, least: np.float32) -> np.ndarray:
    """Return the logarithms, float32, of values of at least `least`."""
    logs: np.ndarray = np.log(np.maximum(values, least))
    return logs
