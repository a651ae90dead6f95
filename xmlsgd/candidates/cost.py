"""Choose the cost of the hinge loss, and the features of linear classifiers, on some of the training rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..data.csr import CSR
from ..data.held_out import draw_rows
from ..devices.cpu import CPU
from .linear import COST, HeldOutLabels, Pairs, score_without
from .stacking import margin_log_losses

LOWEST_COST = 0.25  # the cost is halved from `COST` down to this; a cost above `COST` does not help stacked scores
ROWS, LEAST_ROWS = 2000, 100  # validation rows, at most a tenth of all; with fewer, the defaults are used
LABEL_SHARE = 1 / 32  # a sample of the labels, with this share of the entries of all pairs, is trained for validation
MIN_ENTRIES = 1 << 20  # or with so many entries, if that is more
# Weights for all features of a label's pairs may be four times as many as those for the features of its own rows. With
# more than `FEW_ROWS` training rows, they are used only if they lower the log loss on validation rows by `LEAST_GAIN`
# (relative) and by two standard errors. This is tried on labels with `MIN_ENTRIES` entries.
FEW_ROWS, LEAST_GAIN = 10_000, 0.005


def draw_validation_rows(weight: np.ndarray, candidates: np.ndarray, groups: np.ndarray | None = None) -> HeldOutLabels:
    """Draw validation rows, the same in each run; return them with their candidate labels, none if rows are too few.

    weight : weights of the rows, float32 (n,); rows of weight 0 are not drawn. candidates : candidate labels by votes
    of other rows, int32 (n, M). groups : groups of the rows, int64 (n,), which are drawn as a whole; None for
    independent rows.
    """
    learned = np.flatnonzero(weight)
    n = min(ROWS, len(learned) // 10)
    drawn = draw_rows(len(learned), n, None if groups is None else groups[learned], np.random.default_rng(0))
    rows = learned[drawn if len(drawn) >= LEAST_ROWS else drawn[:0]]
    return HeldOutLabels(rows, candidates[rows], np.zeros(len(rows), np.int32))


def choose_cost(X: CSR, Y: CSR, weight: np.ndarray, pairs: Pairs, validation: HeldOutLabels, device: CPU) -> float:
    """Return the cost with the lowest log loss of margins on validation rows and a sample of the labels."""
    if not len(validation.rows):
        return COST
    sampled = _sample_labels(pairs, max(int(pairs.entries[-1] * LABEL_SHARE), MIN_ENTRIES))
    losses = _losses_of(X, Y, weight, validation, device, sampled)

    def loss(cost: float) -> float:
        of_pairs, found = losses(pairs, cost)
        return float(of_pairs.sum() / max(found.sum(), 1))

    best, least = COST, loss(COST)
    while best > LOWEST_COST and (lower := loss(best / 2)) < least:
        best, least = best / 2, lower
    return best


def all_features_help(
    X: CSR, Y: CSR, weight: np.ndarray, pairs: Pairs, cost: float, validation: HeldOutLabels, device: CPU
) -> bool:
    """Return whether weights for all features of a label's pairs are more accurate on validation rows.

    Features that only negatives have can indicate the absence of a label. In texts there are many such features, which
    hardly help; if rows are choices (artists, products), they help much.
    """
    if not len(validation.rows):
        return False
    losses = _losses_of(X, Y, weight, validation, device, _sample_labels(pairs, MIN_ENTRIES))
    of_own, of_all = (losses(pairs._replace(all_features=each), cost)[0].sum(axis=1) for each in (False, True))
    gain = of_own - of_all
    return bool(gain.sum() > LEAST_GAIN * of_own.sum() and gain.mean() > 2 * gain.std() / np.sqrt(len(gain)))


def _losses_of(
    X: CSR, Y: CSR, weight: np.ndarray, validation: HeldOutLabels, device: CPU, sampled: np.ndarray
) -> Callable[[Pairs, float], tuple[np.ndarray, np.ndarray]]:
    """Return a function that computes log losses of validation rows and `sampled` labels, given pairs and a cost.

    It trains classifiers and returns the log loss of each row and label, (h, m), and a mask of those that exist. The
    log loss is that of a logistic regression of margin, log label frequency and their product, fitted to these pairs.
    """
    rows, labels, _ = validation
    truth, others, kept = Y.take(rows).has(labels), weight.copy(), np.isin(labels, sampled)
    others[rows] = 0
    frequency = np.bincount(Y.row_entries(np.flatnonzero(others)), minlength=Y.n_cols).astype(np.float32)

    def losses(pairs: Pairs, cost: float) -> tuple[np.ndarray, np.ndarray]:
        margins = score_without(X, weight, pairs, cost, validation, device, sampled)
        found, out = kept & ~np.isnan(margins), np.zeros(labels.shape)
        out[found] = margin_log_losses(margins[found], truth[found], frequency[labels[found]])
        return out, found

    return losses


def _sample_labels(pairs: Pairs, n_entries: int) -> np.ndarray:
    """Return random labels, the same in each run, whose pairs have about `n_entries` entries in all."""
    shuffled = np.random.default_rng(1).permutation(len(pairs.starts) - 1)
    entries = np.cumsum(np.diff(pairs.entries)[shuffled])
    return shuffled[: int(np.searchsorted(entries, n_entries)) + 1]
