"""The cost of the hinge loss of linear classifiers, chosen by held-out rows."""

from __future__ import annotations

import numpy as np

from ..data.csr import CSR
from ..devices.cpu import CPU
from .linear import COST, LinearClassifiers, Pairs, Rated
from .stacking import calibrated_log_loss

LOWEST = 0.25  # cost that is tried: `COST` is halved while the loss falls; higher ones gain nothing once stacked
ROWS, LEAST_ROWS = 2000, 100  # held-out rows that choose: a tenth at most; with fewer, nothing is chosen
SHARE, ENTRIES = 8, 1 << 22  # labels with an eighth of the entries of all pairs are tried, or with so many at least
PASSES = 5  # over the pairs of a label: enough to tell costs apart


def draw_trial(weight: np.ndarray, candidates: np.ndarray) -> Rated:
    """Return rows that costs are compared by, drawn at random, with their candidate labels; none of too few rows.

    candidates : int32 (n, M), true labels among them, by votes of other rows.
    """
    learned = np.flatnonzero(weight)
    n = min(ROWS, len(learned) // 10)
    rows = np.sort(np.random.default_rng(0).choice(learned, n if n >= LEAST_ROWS else 0, replace=False))
    return Rated(rows, candidates[rows])


def choose_cost(X: CSR, Y: CSR, weight: np.ndarray, pairs: Pairs, trial: Rated, device: CPU) -> float:
    """Return the cost whose classifiers tell true labels of the rows of a trial best from their other candidates.

    By the log loss of a regression of margin and label frequency, of some labels drawn at random.
    """
    if not len(trial.rows):
        return COST
    rows, labels = trial
    drawn, truth = _draw_labels(pairs), Y.take(rows).has(labels)
    kept = np.isin(labels, drawn)
    weight_left = weight.copy()
    weight_left[rows] = 0
    frequency = np.bincount(Y.row_entries(np.flatnonzero(weight_left)), minlength=Y.n_cols).astype(np.float32)

    def loss(cost: float) -> float:
        _, margins = LinearClassifiers.fit_rated(X, weight, pairs, cost, trial, device, drawn, PASSES)
        at = kept & ~np.isnan(margins)
        return calibrated_log_loss(margins[at], truth[at], frequency[labels[at]])

    best, least = COST, loss(COST)
    while best > LOWEST and (lower := loss(best / 2)) < least:
        best, least = best / 2, lower
    return best


def _draw_labels(pairs: Pairs) -> np.ndarray:
    """Return labels with an eighth of the entries of all pairs, or `ENTRIES` of them, drawn at random."""
    shuffled = np.random.default_rng(1).permutation(len(pairs.starts) - 1)
    entries = np.cumsum(np.diff(pairs.entries)[shuffled])
    n = int(np.searchsorted(entries, max(entries[-1] // SHARE, ENTRIES)))
    return shuffled[: n + 1]
