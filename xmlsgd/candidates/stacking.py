"""Stacking by logistic regression: the weights of k-NN, linear classifiers and network, learned on held-out rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

MIN_VOTE = np.float32(1e-4)  # share of the votes of a label without any, so that its log is finite


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
    """Log odds = network * log P(network) + neighbors * log(share of votes) + linear * margin + intercept.

    The defaults were learned on two sets of library records; they apply where too few rows can be held out.
    """

    network: float = 0.08
    neighbors: float = 0.8
    linear: float = 2.5
    intercept: float = 2.5

    @classmethod
    def fit(cls, features: np.ndarray, truth: np.ndarray, counts: np.ndarray) -> LogisticStacking:
        """Return the weights that predict `truth` bool (n,) from `features` float32 (n, 3), see `meta_features`.

        counts : float32 (n,), sample weight of each pair of a row and a label, 1 on average.
        """
        if truth.all() or not truth.any():
            return cls()
        found = _regression(features, truth, counts)
        return cls(*(float(value) for value in (*np.maximum(found.coef_[0], 0), found.intercept_[0])))

    @classmethod
    def fit_calibrated(
        cls, features: np.ndarray, truth: np.ndarray, frequency: np.ndarray, counts: np.ndarray
    ) -> tuple[LogisticStacking, Calibration]:
        """Return the weights for calibrated margins, and the calibration; frequency : float32 (n,), of each label.

        The calibration is learned without sample weights, the stacking with `counts`: learned with `counts`, the
        calibration overrates frequent labels on new rows (docs/decisions/candidates.md). Margins stay uncalibrated if
        the regression would give a base model no positive weight beside the frequency.
        """
        if truth.all() or not truth.any():
            return cls(), Calibration()
        logs, margins = np.log1p(frequency), features[:, 2]
        mean = float(logs.mean())
        more = np.stack([logs - mean, (logs - mean) * margins], axis=1)
        found = _regression(np.concatenate([features, more], axis=1), truth)
        network, neighbors, linear, shift, slope = (float(value) for value in found.coef_[0])
        if min(network, neighbors, linear) <= 0:
            return cls.fit(features, truth, counts), Calibration()
        calibration = Calibration(slope / linear, shift / linear, mean)
        calibrated, (factor, shifted) = features.copy(), calibration.factors(frequency)
        calibrated[:, 2] = factor * margins + shifted
        return cls.fit(calibrated, truth, counts), calibration

    def scores(self, logits: np.ndarray, votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
        """Return log odds, float32, of pairs of a row and a label; all arrays have one shape."""
        neighbors, linear, intercept = (np.float32(value) for value in self[1:])
        without_network = neighbors * _log_share(votes) + linear * margins + intercept
        return np.float32(self.network) * log_probability(logits) + without_network


def _regression(features: np.ndarray, truth: np.ndarray, counts: np.ndarray | None = None) -> LogisticRegression:
    """Fit a logistic regression with little regularization: there are many pairs and few weights."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, max_iter=1000).fit(features, truth, counts)


def meta_features(logits: np.ndarray, votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Return the inputs of the logistic meta-learner, float32 (..., 3), of pairs of a row and a label."""
    return np.stack([log_probability(logits), _log_share(votes), margins], axis=-1)


def log_probability(logits: np.ndarray) -> np.ndarray:
    """Return log(1 / (1 + exp(-z))), float32."""
    return -np.logaddexp(np.float32(0), -logits)


def _log_share(votes: np.ndarray) -> np.ndarray:
    """Return the log of the share of votes, float32; labels without votes count as having `MIN_VOTE`."""
    logs: np.ndarray = np.log(np.maximum(votes, MIN_VOTE))
    return logs
