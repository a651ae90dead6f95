"""How much each path is to be believed: a logistic regression on rows that neither path has learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

LEAST_VOTE = np.float32(1e-4)  # share of the votes that a label without any is taken to have


class Calibration(NamedTuple):
    """What the frequency of a label makes of its margin m: (1 + slope x) m + shift x, with x = log(1 + rows) - mean."""

    slope: float = 0.0
    shift: float = 0.0
    mean: float = 0.0

    def factors(self, frequency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the margin of each label is multiplied by, at least 0, and what is added; float32 (L,)."""
        x = np.log1p(frequency) - np.float32(self.mean)
        return np.maximum(1 + np.float32(self.slope) * x, 0), np.float32(self.shift) * x


class Blend(NamedTuple):
    """Log odds = network * log P(network) + neighbors * log(share of votes) + linear * margin + intercept.

    The defaults are what two sets of library records came to; they serve where too few rows could be held out.
    """

    network: float = 0.08
    neighbors: float = 0.8
    linear: float = 2.5
    intercept: float = 2.5

    @classmethod
    def fit(cls, evidence: np.ndarray, truth: np.ndarray, counts: np.ndarray) -> Blend:
        """Return the weights that explain `truth` bool (n,) best by `evidence` (`evidence_of`).

        counts : float32 (n,), how much each pair counts, 1 on average.
        """
        if truth.all() or not truth.any():
            return cls()
        found = _regression(evidence, truth, counts)
        return cls(*(float(value) for value in (*np.maximum(found.coef_[0], 0), found.intercept_[0])))

    @classmethod
    def fit_by_frequency(
        cls, evidence: np.ndarray, truth: np.ndarray, frequency: np.ndarray, counts: np.ndarray
    ) -> tuple[Blend, Calibration]:
        """Return the weights that go with calibrated margins, and what calibrates them; frequency : float32 (n,).

        Pairs calibrate alike and weigh the paths by their `counts` (`fit`): calibrated by those that count most, what
        is frequent matters more than on new rows it does (docs/decisions/shortlist.md). Margins stay as they are where
        a path would have no weight beside the frequency.
        """
        if truth.all() or not truth.any():
            return cls(), Calibration()
        logs, margins = np.log1p(frequency), evidence[:, 2]
        mean = float(logs.mean())
        more = np.stack([logs - mean, (logs - mean) * margins], axis=1)
        found = _regression(np.concatenate([evidence, more], axis=1), truth)
        network, neighbors, linear, shift, slope = (float(value) for value in found.coef_[0])
        if min(network, neighbors, linear) <= 0:  # the frequency stands for what a path says
            return cls.fit(evidence, truth, counts), Calibration()
        calibration = Calibration(slope / linear, shift / linear, mean)
        calibrated, (factor, shifted) = evidence.copy(), calibration.factors(frequency)
        calibrated[:, 2] = factor * margins + shifted
        return cls.fit(calibrated, truth, counts), calibration

    def scores(self, logits: np.ndarray, votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
        """Return log odds, float32, of pairs of a row and a label; arrays of one shape."""
        return np.float32(self.network) * log_probability(logits) + self.bounds(votes, margins)

    def bounds(self, votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
        """Return log odds without what the network says, which can only lower them."""
        neighbors, linear, intercept = (np.float32(value) for value in self[1:])
        return neighbors * log_share(votes) + linear * margins + intercept


def _regression(evidence: np.ndarray, truth: np.ndarray, counts: np.ndarray | None = None) -> LogisticRegression:
    """Return the logistic regression of `truth` on `evidence`, hardly penalised: pairs are many, weights are few."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, max_iter=1000).fit(evidence, truth, counts)


def evidence_of(logits: np.ndarray, votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Return what the first three weights of a blend are for, float32 (..., 3), of pairs of a row and a label."""
    return np.stack([log_probability(logits), log_share(votes), margins], axis=-1)


def log_share(votes: np.ndarray) -> np.ndarray:
    """Return the log of the share of the votes, of labels without any that of `LEAST_VOTE`; float32."""
    logs: np.ndarray = np.log(np.maximum(votes, LEAST_VOTE))
    return logs


def log_probability(logits: np.ndarray) -> np.ndarray:
    """Return log(1 / (1 + exp(-z))), float32."""
    return -np.logaddexp(np.float32(0), -logits)
