"""Scores of labels that are not candidates of their row, given by the network alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..data.csr import CSR
from ..devices.cpu import CPU
from ..devices.cpu.kernels.non_candidates import LARGEST, N_BINS, WIDTH, count_others
from .stacking import MIN_COOCCURRENCE, MIN_NETWORK, MIN_VOTE, LogisticStacking, log_probability
from .stacking_training import weights_of_true

CENTERS = np.arange(-LARGEST, LARGEST, WIDTH, dtype=np.float32) + WIDTH / 2  # of the bins of `count_others`


class NonCandidateScores(NamedTuple):
    """Log odds of a label that is not a candidate of its row: network * log P(network) + intercept."""

    network: float
    intercept: float

    @classmethod
    def from_stacking(cls, regression: LogisticStacking) -> NonCandidateScores:
        """Return the log odds by stacking of a candidate without votes and co-occurrence and of margin -1.

        They are too high, since not being a candidate tells more than that.
        """
        without_network = regression._replace(network=0)
        intercept = without_network.scores(np.float32(0), MIN_VOTE, np.float32(-1), MIN_COOCCURRENCE)
        return cls(regression.network, float(intercept))

    @classmethod
    def fit(cls, counts: NDArray[np.float64], regression: LogisticStacking) -> NonCandidateScores:
        """Fit a logistic regression to the counts, float64 (2, bins), of `count_non_candidates`.

        As few labels may be true, or none, at most one true label is added, spread over the bins in proportion to the
        probabilities by stacking (`from_stacking`).
        """
        from scipy.optimize import minimize

        prior, (false, true) = cls.from_stacking(regression), counts
        expected = (false + true) * expit(prior.log_odds(CENTERS).astype(np.float64))
        true = true + expected / max(expected.sum(), 1)
        if not true.any():
            return prior
        n, true = (false + true) / true.sum(), true / true.sum()
        logs = log_probability(CENTERS).astype(np.float64)
        center = true @ logs  # so that the intercept depends little on the weight

        def loss(learned: np.ndarray) -> tuple[float, np.ndarray]:
            odds = learned[0] * (logs - center) + learned[1]
            wrong = n * expit(odds) - true
            return n @ np.logaddexp(0, odds) - true @ odds, np.array([wrong @ (logs - center), wrong.sum()])

        start = prior.network, prior.network * center + prior.intercept
        network, intercept = minimize(loss, start, jac=True, bounds=[(MIN_NETWORK, None), (None, None)]).x
        return cls(float(network), float(intercept - network * center))

    def log_odds(self, logits: np.ndarray) -> np.ndarray:
        """Return the log odds, float32, of labels with these logits, of any shape."""
        return np.float32(self.network) * log_probability(logits) + np.float32(self.intercept)

    def logits_of(self, scores: np.ndarray) -> np.ndarray:
        """Return the logits that give these scores, float32 of the same shape; infinite for scores that none gives."""
        probability = np.exp(np.minimum((scores.astype(np.float64) - self.intercept) / self.network, 0))
        with np.errstate(divide="ignore"):
            return (np.log(probability) - np.log1p(-probability)).astype(np.float32)


def count_non_candidates(
    activations: Iterable[tuple[np.ndarray, np.ndarray]],
    W: np.ndarray,
    b: np.ndarray,
    Y: CSR,
    candidates: np.ndarray,
    frequency: np.ndarray,
    n_rows: int,
    device: CPU,
) -> NDArray[np.float64]:
    """Count the labels of held-out rows that are not their candidates, by logit: false and true, float64 (2, bins).

    True labels have the weights that they have among candidates (`HeldOutPairs.weights`). Two kinds do not count: true
    labels that no other row has, as the network has not seen them, and all labels of rows without candidates.

    activations : blocks of row indices and their activations (rows, H). W (L, H), b (L,) : the output layer, float32.
    Y : the labels of the rows. candidates : their candidate labels, int32 (n, m), -1 for none. frequency : label
    frequencies without the rows, float32 (L,), scaled to `n_rows` rows.
    """
    counts = np.zeros((device.n_threads, 2, N_BINS))
    weights = np.where(frequency > 0, weights_of_true(frequency, n_rows), 0)
    for rows, A in activations:
        true = Y.take(rows)
        with device.start():
            device.run(count_others, A, W, b, candidates[rows], true.indptr, true.indices, weights, counts)
    return np.asarray(counts.sum(axis=0))
