"""Stacking: log odds of candidates from the scores of all base models, by a regression and trees that correct it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..devices.cpu import CPU
from .boosted_trees import BoostedTrees
from .exclusion import Exclusion

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

# In place of what is smaller, so that its log is finite. Of the labels that co-occurrence alone proposes enough are
# true that with a tenth of this MIN_VOTE votes would count for little (docs/decisions/candidates.md).
MIN_VOTE, MIN_COOCCURRENCE = np.float32(1e-2), np.float32(1e-5)
MIN_NETWORK = 1e-3  # weight of the network, which ranks all labels where nothing else is known of them


class Inputs(NamedTuple):
    """What the base models say of pairs of a row and a label; float32, all of one shape.

    logits : of the network. votes : shares of the neighbors' votes. margins : of the linear classifiers.
    """

    logits: np.ndarray
    votes: np.ndarray
    margins: np.ndarray
    cooccurrence: np.ndarray


N_MODELS = len(Inputs._fields)  # base models


class Calibration(NamedTuple):
    """Corrects a margin m by the frequency of its label: (1 + slope x) m + shift x, with x = log(1 + rows) - mean."""

    slope: float = 0.0
    shift: float = 0.0
    mean: float = 0.0

    def factors(self, frequency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the factor of each label's margin, at least 0, and the term added to it; both float32 (L,)."""
        x = np.log1p(frequency) - np.float32(self.mean)
        return np.maximum(1 + np.float32(self.slope) * x, 0), np.float32(self.shift) * x


class LogisticStacking(NamedTuple):
    """Weights of the log odds that a label is true.

    network * log P(network) + neighbors * log(share of votes) + linear * margin + cooccurrence * log(co-occurrence)
    + intercept. The defaults were learned on two sets; they apply where too few rows can be held out.
    """

    network: float = 0.3
    neighbors: float = 0.5
    linear: float = 2.1
    cooccurrence: float = 0.15
    intercept: float = 1.7

    @classmethod
    def fit(cls, features: np.ndarray, truth: np.ndarray) -> LogisticStacking:
        """Return the weights, at least 0, that predict `truth` bool (n,) from `features` float32 (n, 4).

        The features are those of `meta_features`. One whose weight would be negative is left out, and the others are
        learned again without it.
        """
        if truth.all() or not truth.any():
            return cls()
        *weights, intercept = _nonnegative_weights(features, truth)
        return cls._bounded(weights, intercept)

    @classmethod
    def _bounded(cls, weights: list[float], intercept: float) -> LogisticStacking:
        """Return the weights, none of them negative and the network's above 0."""
        network, neighbors, linear, cooccurrence = (max(each, 0.0) for each in weights)
        return cls(max(network, MIN_NETWORK), neighbors, linear, cooccurrence, intercept)

    @classmethod
    def fit_calibrated(
        cls, features: np.ndarray, truth: np.ndarray, frequency: np.ndarray
    ) -> tuple[LogisticStacking, Calibration]:
        """Return the weights for calibrated margins, and the calibration; frequency : float32 (n,), of each label.

        Margins stay uncalibrated if the regression would give the linear classifiers no positive weight beside the
        frequency.
        """
        if truth.all() or not truth.any():
            return cls(), Calibration()
        mean = float(np.log1p(frequency).mean())
        *weights, shift, slope, intercept = _nonnegative_weights(_with_frequency(features, frequency, mean), truth)
        linear = weights[2]
        if linear <= 0:
            return cls.fit(features, truth), Calibration()
        return cls._bounded(weights, intercept), Calibration(slope / linear, shift / linear, mean)

    def scores(
        self, logits: np.ndarray, votes: np.ndarray, margins: np.ndarray, cooccurrence: np.ndarray
    ) -> np.ndarray:
        """Return log odds, float32, of pairs of a row and a label; all arrays have one shape."""
        network, neighbors, linear, weight, intercept = (np.float32(value) for value in self)
        found = weight * _log(cooccurrence, MIN_COOCCURRENCE) + intercept
        without_network = neighbors * _log(votes, MIN_VOTE) + linear * margins + found
        return network * log_probability(logits) + without_network


class Stacking(NamedTuple):
    """The meta-learner: a regression, the calibration of its margins, and what corrects its log odds, each or None.

    trees : correct those of each label, exclusion : then those of labels beside others.
    """

    regression: LogisticStacking
    calibration: Calibration
    trees: BoostedTrees | None = None
    exclusion: Exclusion | None = None

    def scores(self, labels: np.ndarray, inputs: Inputs, n_excluding: int, device: CPU) -> np.ndarray:
        """Return log odds, float32, of the labels int32, all (n, M), given their inputs; margins are calibrated.

        The labels are all candidates of a row; the `n_excluding` that rank highest without margins exclude others.
        """
        log_odds = self.regression.scores(*inputs)
        with device.start():
            if self.trees is not None:
                log_odds = self.trees.corrected(log_odds, labels, *inputs, device)
            if self.exclusion is not None:
                first = self.regression.scores(*inputs._replace(margins=np.zeros_like(inputs.margins)))
                log_odds = self.exclusion.corrected(log_odds, labels, first, n_excluding, device)
        return log_odds


def log_loss(features: np.ndarray, truth: np.ndarray, frequency: np.ndarray) -> float:
    """Return the mean log loss of the regression with calibration that is learned from these pairs; 0 for one class."""
    if truth.all() or not truth.any():
        return 0.0
    mean = float(np.log1p(frequency).mean())
    return float(_log_losses(_with_frequency(features, frequency, mean), truth).mean())


def margin_log_losses(margins: np.ndarray, truth: np.ndarray, frequency: np.ndarray) -> np.ndarray:
    """Return the log losses of a regression of margins float32 (n,), log label frequency and the product of both."""
    if truth.all() or not truth.any():
        return np.zeros(len(truth))
    logs = np.log1p(frequency)
    return _log_losses(np.stack([margins, logs, logs * margins], axis=1), truth)


def _log_losses(columns: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the log losses of a regression on the pairs that it was learned from.

    With the C that the thresholds on these losses were chosen with.
    """
    return log_losses(_regression(columns, truth, C=10.0).decision_function(columns), truth)


def log_losses(log_odds: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the log loss of each pair, given its log odds and whether it is true, of one shape."""
    losses: np.ndarray = np.logaddexp(0, np.where(truth, -log_odds, log_odds))
    return losses


def _with_frequency(features: np.ndarray, frequency: np.ndarray, mean: float) -> np.ndarray:
    """Return the features of pairs, the log of the label's frequency, and its product with the margin."""
    logs = np.log1p(frequency) - np.float32(mean)
    return np.concatenate([features, np.stack([logs, logs * features[:, 2]], axis=1)], axis=1)


def _nonnegative_weights(features: np.ndarray, truth: np.ndarray) -> list[float]:
    """Return the weights of a regression and its intercept, with no negative weight of a base model.

    The first features are those of the base models. A model whose weight would be negative is left out, and the others
    are learned again without it; only the weight of the last one left may be negative.
    """
    weights, used = np.zeros(features.shape[1]), np.arange(features.shape[1])
    found = _regression(features, truth)
    while (n := np.count_nonzero(used < N_MODELS)) > 1 and found.coef_[0, :n].min() < 0:
        used = np.delete(used, found.coef_[0, :n].argmin())
        found = _regression(features[:, used], truth)
    weights[used] = found.coef_[0]
    return [*weights.tolist(), float(found.intercept_[0])]


def _regression(features: np.ndarray, truth: np.ndarray, C: float = 100.0) -> LogisticRegression:
    """Fit a logistic regression with little regularization, by Newton steps: there are many pairs and few weights.

    Margins lie close together, so their weight is large; a smaller C would hold it back (docs/decisions/candidates.md).
    In float64: in float32 the Hessian is singular where a feature is the same for all pairs.
    """
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, solver="newton-cholesky").fit(features.astype(np.float64), truth)


def meta_features(logits: np.ndarray, votes: np.ndarray, margins: np.ndarray, cooccurrence: np.ndarray) -> np.ndarray:
    """Return the inputs of the logistic meta-learner, float32 (..., 4), of pairs of a row and a label."""
    logs = _log(votes, MIN_VOTE), _log(cooccurrence, MIN_COOCCURRENCE)
    return np.stack([log_probability(logits), logs[0], margins, logs[1]], axis=-1)


def log_probability(logits: np.ndarray) -> np.ndarray:
    """Return log(1 / (1 + exp(-z))), float32."""
    return -np.logaddexp(np.float32(0), -logits)


def _log(values: np.ndarray, least: np.float32) -> np.ndarray:
    """Return the logs, float32; values below `least` count as `least`."""
    logs: np.ndarray = np.log(np.maximum(values, least))
    return logs
