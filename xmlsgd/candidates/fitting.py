"""Fitting a candidate model: first all that needs no network, then, with the network's logits, the stacking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..data.csr import CSR, Dataset
from ..devices.cpu import CPU
from .cooccurrence import N_COOCCURRING, N_COOCCURRING_IN_TRAINING, Cooccurrence
from .cost import FEW_ROWS, all_features_help, choose_cost, draw_validation_rows
from .exclusion import Exclusion, most_frequent
from .held_out_pairs import (
    HeldOutPairs,
    HeldOutScores,
    fit_exclusion,
    fit_stacking,
    frequency_of_learned,
    label_rows_help,
)
from .knn import KNNIndex, row_votes
from .linear import UNTRAINED, HeldOutLabels, LinearClassifiers, Pairs, find_pairs, with_random_negatives
from .model import CandidateModel, Logits, n_voted, with_more
from .stacking import Calibration, Inputs, LogisticStacking, Stacking
from .weighting import idf_weights, unit_rows, without_wide_rows

BLOCK = 1 << 16  # rows whose votes are held in memory together


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """The rows that a candidate model learns, and how.

    Attributes
    ----------
    dataset : the rows; the last `n_label_rows` are made of label texts, each of one label.
    weight : float32 (n,), sample weights.
    folds : of held-out rows, which the stacking learns from: intp, disjoint, each rated by models without its rows.
    size : candidate labels of a row.
    cost : of the hinge loss of the classifiers, None to choose it, and `all_features`, by some of the rows.
    all_features : whether classifiers have weights for all features of their rows (`Pairs`); up to `FEW_ROWS` rows they
        have.
    groups : int64, of the rows but label rows, which keep the rows of a group together where some are drawn; None where
        rows are independent.
    compared : whether the first fold is also scored by classifiers without label rows of labels that other rows have.
    """

    dataset: Dataset
    weight: np.ndarray
    folds: Sequence[np.ndarray]
    size: int
    cost: float | None = None
    all_features: bool = False
    groups: np.ndarray | None = None
    n_label_rows: int = 0
    compared: bool = True

    def learned(self, fold: int) -> np.ndarray:
        """Return the weights without the rows of a fold."""
        learned = self.weight.copy()
        learned[self.folds[fold]] = 0
        return learned

    @property
    def label_rows_of_seen(self) -> np.ndarray:
        """Return the label rows of labels that other rows have, too, held-out ones aside.

        A held-out row may then have labels that only a text is known of, as rows to come may.
        """
        Y, first = self.dataset.Y, self.dataset.X.n_rows - self.n_label_rows
        learned = self.weight[:first].copy()
        learned[np.concatenate([np.empty(0, np.intp), *self.folds])] = 0
        seen = np.bincount(Y.row_entries(np.flatnonzero(learned)), minlength=Y.n_cols) > 0
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

    held_out : the held-out rows of all folds and their candidate labels int32 (h, m). votes, margins, cooccurrence :
    float32 (h, m), what models that have not learned the rows of the same fold say of them. without : votes, margins
    and co-occurrence of the first fold by models without label rows; None where there are none to leave out.
    """

    rows: CandidateRows
    model: CandidateModel
    held_out: HeldOutLabels
    votes: np.ndarray
    margins: np.ndarray
    cooccurrence: np.ndarray
    without: tuple[np.ndarray, np.ndarray, np.ndarray] | None

    def pairs(self, fold: int, logits: Logits) -> HeldOutPairs:
        """Return the rows of a fold with their candidates, by the logits of a network that has not learned them."""
        rows, dataset, at = self.rows, self.rows.dataset, self.held_out.fold == fold
        held_out, labels = rows.folds[fold], self.held_out.labels[at]
        frequency = frequency_of_learned(dataset.Y, rows.learned(fold), rows.weight)
        found = logits(dataset.X.take(held_out), labels)
        scores = Inputs(found, self.votes[at], self.margins[at], self.cooccurrence[at])
        truth = dataset.Y.take(held_out).has(labels)
        groups = None if rows.groups is None else rows.groups[held_out]
        return HeldOutPairs(labels, scores, truth, frequency, groups, fold)


def fit_unstacked(rows: CandidateRows, device: CPU) -> Unstacked:
    """Fit k-NN index, co-occurrence and linear classifiers, once for all folds."""
    X, Y, weight = rows.dataset.X, rows.dataset.Y, rows.weight
    scale = idf_weights(X.span(0, X.n_rows - rows.n_label_rows))
    of_seen, without = rows.label_rows_of_seen, None
    with device.start():
        weighted = unit_rows(X, scale, device)  # as the neighbors see them
        knn = KNNIndex.build(weighted, Y, row_votes(weight, rows.n_label_rows))
        candidates, held_out, votes = _voted(rows, knn, weighted, device)
        validation = draw_validation_rows(weight[: X.n_rows - rows.n_label_rows], candidates, rows.groups)
        cooccurrence = Cooccurrence.count(X, Y, weight, device)
        candidates, held_out, shares = _with_cooccurring(rows, cooccurrence, weighted, candidates, held_out, device)
        del weighted
        unit = unit_rows(X, None, device)  # as the linear classifiers see them
        pairs = _learned_pairs(rows, unit, weight, candidates, held_out, device)
        cost, pairs = rows.cost, pairs._replace(all_features=rows.all_features or X.n_rows <= FEW_ROWS)
        if cost is None:
            cost = choose_cost(unit, Y, weight, pairs, validation, device)
            if not pairs.all_features:
                helps = all_features_help(unit, Y, weight, pairs, cost, validation, device)
                pairs = pairs._replace(all_features=helps)
        if rows.compared and len(of_seen) and rows.folds:  # before the others, so that memory holds one of them
            left = weight.copy()
            left[of_seen] = 0
            others = _learned_pairs(rows, unit, left, candidates, held_out, device)
            others = others._replace(all_features=pairs.all_features)
            of_fold = held_out.of_fold(0)
            margins = _fit_and_score(unit, left, others, cost, of_fold, device)[1]
            del others
            votes_without, shares_without = _scores_of_first_fold(replace(rows, weight=left), scale, of_fold, device)
            without = votes_without, margins, shares_without
        linear, margins = _fit_and_score(unit, weight, pairs, cost, held_out, device)
    nothing = Stacking(LogisticStacking(), Calibration())
    label_rows = np.arange(X.n_rows - rows.n_label_rows, X.n_rows, dtype=np.int64)
    model = CandidateModel(scale, knn, cooccurrence, linear, nothing, rows.size, label_rows)
    rows = replace(rows, cost=cost, all_features=pairs.all_features)
    return Unstacked(rows, model, held_out, votes, margins, shares, without)


def _scores_of_first_fold(
    rows: CandidateRows, scale: np.ndarray, held_out: HeldOutLabels, device: CPU
) -> tuple[np.ndarray, np.ndarray]:
    """Return votes and co-occurrence for the held-out labels of the first fold, by rows that have a weight."""
    learned = rows.learned(0)
    kept, votes = np.flatnonzero(learned), row_votes(learned, rows.n_label_rows)
    X, Y = rows.dataset.X.take(kept), rows.dataset.Y.take(kept)
    of_fold = unit_rows(rows.dataset.X.take(held_out.rows), scale, device)
    index = KNNIndex.build(unit_rows(X, scale, device), Y, votes[kept])
    found, shares = index.votes(of_fold, rows.size, device)
    counted = Cooccurrence.count(X, Y, learned[kept], device)
    cooccurrence = counted.candidates(of_fold, held_out.labels, device)[1][:, : held_out.labels.shape[1]]
    return _of_labels(found, shares, held_out.labels), cooccurrence


def _of_labels(found: np.ndarray, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the values (n, k) of labels (n, m) by those of the labels found (n, k), 0 where one was not found."""
    out = np.zeros(labels.shape, np.float32)
    for row, (named, value) in enumerate(zip(found, values, strict=True)):
        _, at, place = np.intersect1d(labels[row], named, return_indices=True)
        out[row, at] = value[place]
    return np.where(labels >= 0, out, 0)


def _voted(
    rows: CandidateRows, knn: KNNIndex, weighted: CSR, device: CPU
) -> tuple[np.ndarray, HeldOutLabels, np.ndarray]:
    """Return the candidates int32 (n, size) of all rows by votes, and those of held-out rows with shares of votes.

    Rows of a fold do not vote for each other, as no other model has learned them. Otherwise labels that only these rows
    have would be candidates, and true ones, though the network has seen no row with them.
    """
    fold = np.full(weighted.n_rows, -1, np.int32)
    for number, held in enumerate(rows.folds):
        fold[held] = number
    held_out = np.flatnonzero(fold >= 0)
    fold = fold[held_out]
    candidates = training_candidates(knn, weighted, rows.size, device)
    shares = np.empty((len(held_out), rows.size), np.float32)
    for number, held in enumerate(rows.folds):
        others = replace(knn, weight=knn.weight * (rows.learned(number) > 0))
        candidates[held], shares[fold == number] = others.votes(weighted.take(held), rows.size, device)
    labels, shares = most_voted(candidates[held_out], shares)
    return candidates, HeldOutLabels(held_out, labels, fold), with_more(shares)


def most_voted(labels: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels int32 (n, size) that prediction would look at, those with the most votes, and their shares."""
    most = np.argsort(-shares, axis=1)[:, : n_voted(shares.shape[1])]
    return np.take_along_axis(labels, most, axis=1), np.take_along_axis(shares, most, axis=1)


def _with_cooccurring(
    rows: CandidateRows, counted: Cooccurrence, weighted: CSR, candidates: np.ndarray, held_out: HeldOutLabels,
    device: CPU,
) -> tuple[np.ndarray, HeldOutLabels, np.ndarray]:  # fmt: skip
    """Return the candidates of all rows, and of held-out ones, with others by co-occurrence, and that of the latter.

    All rows get `N_COOCCURRING_IN_TRAINING` others, held-out ones `N_COOCCURRING`, from counts without their fold.
    """
    more = counted.candidates(weighted, candidates, device, N_COOCCURRING_IN_TRAINING)[0]
    labels = np.empty((len(held_out.rows), held_out.labels.shape[1] + N_COOCCURRING), np.int32)
    shares = np.empty(labels.shape, np.float32)
    for fold, held in enumerate(rows.folds):
        others = Cooccurrence.count(rows.dataset.X, rows.dataset.Y, rows.learned(fold), device)
        of_fold, at = weighted.take(held), held_out.fold == fold
        labels[at], shares[at] = others.candidates(of_fold, held_out.labels[at], device)
    return more, held_out._replace(labels=labels), shares


def _learned_pairs(
    rows: CandidateRows, X: CSR, weight: np.ndarray, candidates: np.ndarray, held_out: HeldOutLabels, device: CPU
) -> Pairs:
    """Return the rows of each label that its classifier learns, and random negatives, none of them a label row."""
    weight = without_wide_rows(X, rows.dataset.Y, weight)
    pairs = find_pairs(X, rows.dataset.Y, weight, candidates, device, held_out)
    return with_random_negatives(X, weight[: X.n_rows - rows.n_label_rows], pairs, device)


def _fit_and_score(
    X: CSR, weight: np.ndarray, pairs: Pairs, cost: float, held_out: HeldOutLabels, device: CPU
) -> tuple[LinearClassifiers, np.ndarray]:
    """Return classifiers that have learned all pairs, and margins of held-out rows by classifiers without these."""
    linear, margins = LinearClassifiers.fit_and_score(X, weight, pairs, cost, held_out, device)
    return linear, np.where(np.isnan(margins), UNTRAINED, margins)


def with_useful_rows(found: Unstacked, logits: Logits, device: CPU) -> Unstacked:
    """Return the model, fitted again without label rows where these do not help.

    These are of labels that other rows have; they do not help where votes, classifiers and co-occurrence tell the
    candidates of the first fold worse apart with them. logits : of a network that has not learned this fold.
    """
    if found.without is None or label_rows_help(found.pairs(0, logits), *found.without):
        return found
    return fit_unstacked(found.rows.without_label_rows_of_seen(), device)


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
        exclusions = _exclusions(found.rows, [fold.number for fold in folds], full_frequency)
        stacking, scores = fit_exclusion(folds, stacking, scores, *exclusions, device)
    assert isinstance(model.linear, LinearClassifiers)  # not compact: it has just been fitted
    linear = model.linear.calibrate(*stacking.calibration.factors(full_frequency))
    return replace(model, linear=linear, stacking=stacking), scores


def _exclusions(rows: CandidateRows, folds: Sequence[int], frequency: np.ndarray) -> tuple[list[Exclusion], Exclusion]:
    """Return the exclusions counted without the rows of each of these folds, and of all rows but label rows."""
    labels, first = most_frequent(frequency), rows.dataset.X.n_rows - rows.n_label_rows
    weights = *map(rows.learned, folds), rows.weight
    *of_folds, full = (Exclusion.count(rows.dataset.Y.take(np.flatnonzero(w[:first])), labels) for w in weights)
    return of_folds, full


def training_candidates(knn: KNNIndex, rows: CSR, size: int, device: CPU) -> np.ndarray:
    """Return the candidate labels of every training row by votes, int32 (n, size); no row votes for itself.

    rows : of norm 1, in the order of the index. The device is started.
    """
    candidates = np.empty((rows.n_rows, size), np.int32)
    for first in range(0, rows.n_rows, BLOCK):
        last = min(first + BLOCK, rows.n_rows)
        candidates[first:last], _ = knn.votes(rows.span(first, last), size, device, own=first)
    return candidates
