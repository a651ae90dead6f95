"""The cost of the hinge loss of linear classifiers, chosen on some of the training rows."""

from __future__ import annotations

import numpy as np

from ..data.csr import CSR
from ..data.held_out import draw_rows
from ..devices.cpu import CPU
from .linear import COST, HeldOutLabels, Pairs, score_without
from .stacking import margin_log_loss

LOWEST_COST = 0.25  # the cost is halved from `COST` down to this; above `COST` nothing is gained once stacked
ROWS, LEAST_ROWS = 2000, 100  # validation rows: a tenth at most; with fewer, nothing is chosen
LABEL_SHARE = 1 / 8  # labels with this share of the entries of all pairs are trained
MIN_ENTRIES = 1 << 22  # or with so many, if that is more


def draw_validation_rows(weight: np.ndarray, candidates: np.ndarray, groups: np.ndarray | None = None) -> HeldOutLabels:
    """Return rows to choose a cost on, the same in each run, with their candidate labels; none of too few rows.

    weight : float32 (n,); rows of weight 0 are not drawn. candidates : int32 (n, M), true labels among them, by votes
    of other rows. groups : int64 (n,), drawn as a whole; None where rows are independent.
    """
    learned = np.flatnonzero(weight)
    n = min(ROWS, len(learned) // 10)
    drawn = draw_rows(len(learned), n, None if groups is None else groups[learned], np.random.default_rng(0))
    rows = learned[drawn if len(drawn) >= LEAST_ROWS else drawn[:0]]
    return HeldOutLabels(rows, candidates[rows], np.zeros(len(rows), np.int32))


def choose_cost(X: CSR, Y: CSR, weight: np.ndarray, pairs: Pairs, validation: HeldOutLabels, device: CPU) -> float:
    """Return the cost whose margins give the lowest log loss on validation rows.

    A logistic regression of margin, log label frequency and their product is fitted to pairs of these rows and a
    sample of the labels.
    """
    rows, labels, _ = validation
    if not len(rows):
        return COST
    sampled, truth = _sample_labels(pairs), Y.take(rows).has(labels)
    kept, others = np.isin(labels, sampled), weight.copy()
    others[rows] = 0
    frequency = np.bincount(Y.row_entries(np.flatnonzero(others)), minlength=Y.n_cols).astype(np.float32)

    def loss(cost: float) -> float:
        margins = score_without(X, weight, pairs, cost, validation, device, sampled)
        at = kept & ~np.isnan(margins)
        return margin_log_loss(margins[at], truth[at], frequency[labels[at]])

    best, least = COST, loss(COST)
    while best > LOWEST_COST and (lower := loss(best / 2)) < least:
        best, least = best / 2, lower
    return best


def _sample_labels(pairs: Pairs) -> np.ndarray:
    """Return labels drawn at random, with an eighth of the entries of all pairs, or `MIN_ENTRIES`."""
    shuffled = np.random.default_rng(1).permutation(len(pairs.starts) - 1)
    entries = np.cumsum(np.diff(pairs.entries)[shuffled])
    n = int(np.searchsorted(entries, max(entries[-1] * LABEL_SHARE, MIN_ENTRIES)))
    return shuffled[: n + 1]
