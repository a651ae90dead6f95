"""Calibrated probabilities: log odds as a function of scores, learned on rows that the model was not trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from ..data.held_out import draw_pairs
from ..data.validation import Checked, above_zero, ranged

PENALIZED = 10.0  # inverse strength of the penalty on weights, as in scikit-learn's LogisticRegression
LEAST_SCORE = -1e4  # of no candidate
MIN_WEIGHT = 0.05  # weights are at least this large, so that a higher score means a higher probability


@dataclass(frozen=True)
class BetaCalibration(Checked):
    """Beta calibration (Kull, Silva Filho, Flach, AISTATS 2017), a logistic regression of three numbers.

    The log odds that a label of score z is true are low * log(p) - high * log(1 - p) + intercept with p = sigmoid(z):
    `low` is the weight of scores far below 0, `high` of those far above. With equal weights this is Platt scaling. The
    defaults leave scores unchanged.
    """

    low: float = above_zero(1.0)
    high: float = above_zero(1.0)
    intercept: float = ranged(0.0, "finite", math.isfinite)

    @classmethod
    def fit(cls, scores: NDArray[np.float32], truth: NDArray[np.bool_]) -> BetaCalibration:
        """Fit the calibration to pairs of a row and a label: their scores (n,), and whether the label is true (n,).

        Scores stay unchanged if all pairs are true, or none.
        """
        from sklearn.linear_model import LogisticRegression

        if truth.all() or not truth.any():
            return cls()
        regression = LogisticRegression(C=PENALIZED, solver="newton-cholesky")
        drawn, pair_weights = draw_pairs(truth)
        features, truth = np.stack(_logs(scores[drawn]), axis=1), truth[drawn]
        found = regression.fit(features, truth, pair_weights)
        if found.coef_.min() < MIN_WEIGHT:
            found = regression.fit(features.sum(axis=1, keepdims=True), truth, pair_weights)
        weights = np.maximum(found.coef_[0], MIN_WEIGHT)
        return cls(float(weights[0]), float(weights[-1]), float(found.intercept_[0]))

    @classmethod
    def fit_classes(cls, scores: NDArray[np.float32], columns: NDArray[np.intp]) -> BetaCalibration:
        """Fit the calibration to rows of one class each, whose log odds are normalized by softmax.

        scores : those of the candidates of each row, (n, m), -inf for none. columns : the column of the class of each
        row, (n,). A penalty keeps the weights near 1 where there are few rows; the intercept is 0.
        """
        from scipy.optimize import minimize

        logs = np.stack(_logs(np.maximum(scores, LEAST_SCORE)))
        n_rows, of_class = len(scores), logs[:, np.arange(len(scores)), columns]

        def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            log_odds = np.tensordot(weights, logs, 1)
            chance = softmax(log_odds, axis=1)
            likelihood = weights @ of_class - logsumexp(log_odds, axis=1)
            slopes = of_class.sum(axis=1) - (chance * logs).sum(axis=(1, 2))
            moved = (weights - 1) / PENALIZED
            return (moved @ (weights - 1) / 2 - likelihood.sum()) / n_rows, (moved - slopes) / n_rows

        low, high = minimize(loss, np.ones(2), jac=True, bounds=2 * [(MIN_WEIGHT, None)]).x
        return cls(float(low), float(high))

    @classmethod
    def mean(cls, calibrations: Sequence[BetaCalibration]) -> BetaCalibration:
        """Return the calibration of the mean scores of several models, given those of the models."""
        return cls(*np.mean([astuple(each) for each in calibrations], axis=0).tolist())

    def log_odds(self, scores: Any) -> NDArray[np.float64]:
        """Return the log odds, float64, of labels with these scores, in the same order."""
        scores = np.asarray(scores, dtype=np.float64)
        if self == UNCALIBRATED:
            return scores
        below, above = _logs(scores)
        return np.asarray(self.low * below + self.high * above + self.intercept)


UNCALIBRATED = BetaCalibration()


def _logs(scores: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log(p) and -log(1 - p) for p = sigmoid(score); their sum is the score."""
    scores = np.asarray(scores, dtype=np.float64)
    return -np.logaddexp(0, -scores), np.logaddexp(0, scores)
