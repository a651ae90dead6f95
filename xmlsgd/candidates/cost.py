"""Choose the cost of the hinge loss, and the features of linear classifiers, on some of the training rows."""

from __future__ import annotations

import numpy as np

from ..data.csr import CSR
from ..data.held_out import draw_rows
from ..devices.cpu import CPU
from .linear import COST, HeldOutLabels, Pairs, held_out_margins
from .stacking import fitted_log_losses_of_margins

COSTS = COST, COST / 2, COST / 4  # tried until one does not help; a cost above `COST` does not help stacked scores
ROWS, LEAST_ROWS = 2000, 100  # validation rows, at most a tenth of all; with fewer, the defaults are used
LABEL_SHARE = 1 / 32  # a sample of the labels, with this share of the entries of all pairs, is trained for validation
MIN_ENTRIES = 1 << 20  # but at least this many entries; half as many if only the cost has to be chosen
# Weights for all features of a label's pairs may be four times as many as those for the features of its own rows. With
# more than `ALL_FEATURES_ROWS` training rows, they are used only if they lower the log loss on validation rows by
# `LEAST_GAIN` (relative) and by two standard errors. This is tried on labels with `MIN_ENTRIES` entries.
ALL_FEATURES_ROWS, LEAST_GAIN = 10_000, 0.005


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


def choose_cost_and_features(
    Y: CSR, weight: np.ndarray, pairs: Pairs, validation: HeldOutLabels, device: CPU
) -> tuple[float, bool]:
    """Return the cost with the lowest log loss on validation rows, and whether weights for all features lower it.

    Features that only negatives have can indicate the absence of a label. In texts there are many such features, which
    hardly help; if rows are choices (artists, products), they help much. They are not tried if `pairs` has them.
    """
    if not len(validation.rows):
        return COST, pairs.all_features
    rows, labels, _ = validation
    truth, learned = Y.take(rows).has(labels), weight.copy()
    learned[rows] = 0
    frequency = np.bincount(Y.columns_of(np.flatnonzero(learned)), minlength=Y.n_cols).astype(np.float32)

    def losses(margins: np.ndarray) -> np.ndarray:
        """Return the log losses, (h, m), 0 where a margin is NaN, of a regression fitted to these pairs.

        It is a logistic regression of margin, log label frequency and their product.
        """
        found, out = ~np.isnan(margins), np.zeros(labels.shape)
        out[found] = fitted_log_losses_of_margins(margins[found], truth[found], frequency[labels[found]])
        return out

    least_entries = MIN_ENTRIES // 2 if pairs.all_features else MIN_ENTRIES
    sampled = _sample_labels(pairs, max(int(pairs.entries[-1] * LABEL_SHARE), least_entries))
    best, least, of_own = COST, np.inf, np.empty(0, np.float32)
    for cost in COSTS:
        margins = held_out_margins(pairs, cost, validation, device, sampled)
        if (loss := losses(margins).sum()) >= least:
            break
        best, least, of_own = cost, loss, margins
    if pairs.all_features:
        return best, True
    sampled = _sample_labels(pairs, MIN_ENTRIES)  # the first of those above, so that `of_own` has their margins
    of_all = held_out_margins(pairs._replace(all_features=True), best, validation, device, sampled)
    of_own, of_all = (losses(np.where(np.isin(labels, sampled), each, np.nan)).sum(axis=1) for each in (of_own, of_all))
    gain = of_own - of_all
    helps = gain.sum() > LEAST_GAIN * of_own.sum() and gain.mean() > 2 * gain.std() / np.sqrt(len(gain))
    return best, bool(helps)


def _sample_labels(pairs: Pairs, n_entries: int) -> np.ndarray:
    """Return random labels, the same in each run, whose pairs have about `n_entries` entries in all."""
    shuffled = np.random.default_rng(1).permutation(len(pairs.starts) - 1)
    entries = np.cumsum(np.diff(pairs.entries)[shuffled])
    return shuffled[: int(np.searchsorted(entries, n_entries)) + 1]
