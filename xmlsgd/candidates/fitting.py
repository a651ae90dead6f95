"""Fitting a candidate model: first all that needs no network, then, with the network's logits, the stacking."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..data.csr import CSR, Dataset
from ..devices.cpu import CPU
from .cooccurrence import Cooccurrence
from .cost import choose_cost, draw_validation_rows
from .held_out_pairs import HeldOutPairs, HeldOutScores, fit_stacking, frequency_of_learned, label_rows_help
from .knn import KNNIndex, row_votes
from .linear import UNTRAINED, HeldOutLabels, LinearClassifiers, Pairs, find_pairs
from .model import CandidateModel, Logits, n_voted, with_more
from .stacking import Calibration, Inputs, LogisticStacking, Stacking
from .weighting import idf_weights, unit_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 1 << 16  # rows whose votes are held in memory together


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """The rows that a candidate model learns, and how.

    Attributes
    ----------
    dataset : the rows; the last `n_label_rows` are made of label texts, each of one label.
    weight : float32 (n,), sample weights.
    held_out : intp, rows that the stacking learns from, rated by models without them.
    size : candidate labels of a row.
    cost : of the hinge loss of the classifiers, None to choose it by some of the rows.
    groups : int64, of the rows but label rows; held-out rows do not vote for each other, as those of a group are alike.
        None where rows are independent.
    compared : whether held-out rows are also scored by classifiers without label rows of labels that other rows have.
    """

    dataset: Dataset
    weight: np.ndarray
    held_out: np.ndarray
    size: int
    cost: float | None = None
    groups: np.ndarray | None = None
    n_label_rows: int = 0
    compared: bool = True

    @property
    def learned(self) -> np.ndarray:
        """Return the weights without the held-out rows."""
        learned = self.weight.copy()
        learned[self.held_out] = 0
        return learned

    @property
    def label_rows_of_seen(self) -> np.ndarray:
        """Return the label rows of labels that other rows have, too."""
        Y, first = self.dataset.Y, self.dataset.X.n_rows - self.n_label_rows
        seen = np.bincount(Y.row_entries(np.flatnonzero(self.weight[:first])), minlength=Y.n_cols) > 0
        return first + np.flatnonzero(seen[Y.indices[Y.indptr[first] :]])

    def without_label_rows_of_seen(self) -> CandidateRows:
        """Return the rows without label rows of labels that other rows have, too."""
        label_rows = self.label_rows_of_seen
        kept = np.setdiff1d(np.arange(self.dataset.X.n_rows), label_rows)
        dataset = Dataset(self.dataset.X.take(kept), self.dataset.Y.take(kept))
        return replace(
            self, dataset=dataset, weight=self.weight[kept], n_label_rows=self.n_label_rows - len(label_rows)
        )


@dataclass(frozen=True, eq=False)
class Unstacked:
    """A candidate model without a stacking, and what that is learned from.

    labels : int32 (h, m), candidates of the held-out rows. votes, margins, cooccurrence : float32 (h, m), what models
    that have not learned these rows say of them. margins_without : margins of classifiers without label rows; None
    where there are no label rows to leave out.
    """

    rows: CandidateRows
    model: CandidateModel
    labels: np.ndarray
    votes: np.ndarray
    margins: np.ndarray
    cooccurrence: np.ndarray
    margins_without: np.ndarray | None

    def pairs(self, logits: Logits) -> HeldOutPairs:
        """Return the held-out rows with their candidates, by the logits of a network that has not learned them."""
        rows, dataset = self.rows, self.rows.dataset
        frequency = frequency_of_learned(dataset.Y, rows.learned, rows.weight)
        found = logits(dataset.X.take(rows.held_out), self.labels)
        scores = Inputs(found, self.votes, self.margins, self.cooccurrence)
        truth = dataset.Y.take(rows.held_out).has(self.labels)
        groups = None if rows.groups is None else rows.groups[rows.held_out]
        return HeldOutPairs(self.labels, scores, truth, frequency, groups)


def fit_unstacked(rows: CandidateRows, device: CPU) -> Unstacked:
    """Fit k-NN index, co-occurrence and linear classifiers."""
    X, Y, weight, held_out, learned = rows.dataset.X, rows.dataset.Y, rows.weight, rows.held_out, rows.learned
    scale = idf_weights(X.span(0, X.n_rows - rows.n_label_rows))
    of_seen, margins_without = rows.label_rows_of_seen, None
    with device.start():
        weighted = unit_rows(X, scale, device)  # as the neighbors see them
        votes = row_votes(weight, rows.n_label_rows)
        knn = KNNIndex.build(weighted, Y, votes * (learned > 0) if rows.groups is not None else votes)
        candidates, asked, shares = training_candidates(knn, weighted, held_out, rows.size, device)
        validation = draw_validation_rows(weight[: X.n_rows - rows.n_label_rows], candidates, rows.groups)
        # Held-out rows get candidates by co-occurrence that has not counted them; the model's has.
        of_others = Cooccurrence.count(X, Y, learned, device)
        candidates = of_others.candidates(weighted, candidates, device)[0]
        labels, shares_of_features = of_others.candidates(weighted.take(held_out), asked, device)
        cooccurrence = Cooccurrence.count(X, Y, weight, device)
        del weighted, of_others
        unit = unit_rows(X, None, device)  # as the linear classifiers see them
        scored, pairs = HeldOutLabels(held_out, labels), find_pairs(unit, Y, weight, candidates, device)
        cost = choose_cost(unit, Y, weight, pairs, validation, device) if rows.cost is None else rows.cost
        if rows.compared and len(of_seen) and len(held_out):  # before the others, so that memory holds one of them
            without = weight.copy()
            without[of_seen] = 0
            others = find_pairs(unit, Y, without, candidates, device)
            margins_without = _fit_and_score(unit, without, others, cost, scored, device)[1]
            del others
        linear, margins = _fit_and_score(unit, weight, pairs, cost, scored, device)
    nothing = Stacking(LogisticStacking(), Calibration(), None)
    label_rows = np.arange(X.n_rows - rows.n_label_rows, X.n_rows, dtype=np.int64)
    model = CandidateModel(scale, replace(knn, weight=votes), cooccurrence, linear, nothing, rows.size, label_rows)
    rows = replace(rows, cost=cost)
    return Unstacked(rows, model, labels, with_more(shares), margins, shares_of_features, margins_without)


def _fit_and_score(
    X: CSR, weight: np.ndarray, pairs: Pairs, cost: float, held_out: HeldOutLabels, device: CPU
) -> tuple[LinearClassifiers, np.ndarray]:
    """Return classifiers that have learned all pairs, and margins of held-out rows by classifiers without these."""
    linear, margins = LinearClassifiers.fit_and_score(X, weight, pairs, cost, held_out, device)
    return linear, np.where(np.isnan(margins), UNTRAINED, margins)


def with_useful_rows(found: Unstacked, logits: Logits, device: CPU) -> tuple[Unstacked, HeldOutPairs]:
    """Return the model with its held-out pairs, fitted again without label rows that do not help.

    These are of labels that other rows have; they do not help where linear classifiers tell the candidates of the
    held-out rows worse apart with them.
    """
    pairs = found.pairs(logits)
    if found.margins_without is None or label_rows_help(pairs, found.margins_without):
        return found, pairs
    found = fit_unstacked(found.rows.without_label_rows_of_seen(), device)
    return found, found.pairs(logits)


def fit_stacked(
    found: Unstacked, folds: Sequence[HeldOutPairs], device: CPU
) -> tuple[CandidateModel, HeldOutScores | None]:
    """Learn the stacking of a candidate model from held-out pairs; calibrates its classifiers in place.

    Also return the scores of these pairs, None where there are none.
    """
    model = found.model
    if not folds:
        return model, None
    full_frequency = model.knn.frequency(model.knn.Y.n_cols)
    with device.start():
        stacking, scores = fit_stacking(folds, full_frequency, device)
    assert isinstance(model.linear, LinearClassifiers)  # not compact: it has just been fitted
    linear = model.linear.calibrate(*stacking.calibration.factors(full_frequency))
    return replace(model, linear=linear, stacking=stacking), scores


def training_candidates(
    knn: KNNIndex, rows: CSR, held_out: np.ndarray, size: int, device: CPU
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the candidate labels of every training row, int32 (n, size), and those of held-out rows that are scored.

    These are int32 (h, m), with their shares of the votes, float32 (h, m). No row votes for itself.
    rows : of norm 1, in the order of the index. The device is started.
    """
    candidates, shares = np.empty((rows.n_rows, size), np.int32), np.empty((len(held_out), size), np.float32)
    for first in range(0, rows.n_rows, BLOCK):
        last = min(first + BLOCK, rows.n_rows)
        candidates[first:last], found = knn.votes(rows.span(first, last), size, device, own=first)
        held = slice(*np.searchsorted(held_out, (first, last)))
        shares[held] = found[held_out[held] - first]
    most = np.argsort(-shares, axis=1)[:, : n_voted(size)]
    labels, shares = (np.take_along_axis(each, most, axis=1) for each in (candidates[held_out], shares))
    return candidates, labels, shares
