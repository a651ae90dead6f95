"""How much each path is to be believed: a logistic regression on rows that neither path has learned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEAST_VOTE = np.float32(1e-4)  # share of the votes that a label without any is taken to have


class Blend(NamedTuple):
    """Log odds = network * log P(network) + neighbors * log(share of votes) + linear * margin + intercept.

    The defaults are what two sets of library records came to; they serve where too few rows could be held out.
    """

    network: float = 0.08
    neighbors: float = 0.8
    linear: float = 2.5
    intercept: float = 2.5

    @classmethod
    def fit(cls, evidence: np.ndarray, truth: np.ndarray) -> Blend:
        """Return the weights that explain `truth` bool (n,) best by `evidence` (`evidence_of`)."""
        from sklearn.linear_model import LogisticRegression

        if truth.all() or not truth.any():
            return cls()
        found = LogisticRegression(C=10.0, max_iter=1000).fit(evidence, truth)
        return cls(*(float(value) for value in (*np.maximum(found.coef_[0], 0), found.intercept_[0])))

    def scores(self, logits: np.ndarray, votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
        """Return log odds, float32, of pairs of a row and a label; arrays of one shape."""
        return np.float32(self.network) * log_probability(logits) + self.bounds(votes, margins)

    def bounds(self, votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
        """Return log odds without what the network says, which can only lower them."""
        neighbors, linear, intercept = (np.float32(value) for value in self[1:])
        return neighbors * log_share(votes) + linear * margins + intercept


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
