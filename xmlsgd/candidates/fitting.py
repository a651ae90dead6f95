"""Fit a candidate model: first the parts that need no network, then stacking with the network's logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..data.csr import CSR, Dataset
from ..devices.cpu import CPU
from .cooccurrence import N_COOCCURRING, N_COOCCURRING_IN_TRAINING, Cooccurrence
from .cost import FEW_ROWS, choose_cost_and_features, draw_validation_rows
from .exclusion import Exclusion, most_frequent
from .knn import KNNIndex, row_votes
from .linear import MARGIN_WITHOUT_ROWS, HeldOutLabels, LinearClassifiers, Pairs, find_pairs, with_random_negatives
from .model import CandidateModel, Logits, n_voted, padded_votes
from .non_candidates import NonCandidateScores
from .stacking import Inputs, LogisticStacking, MarginCalibration, Stacking
from .stacking_training import (
    HeldOutPairs,
    HeldOutScores,
    fit_exclusion,
    fit_stacking,
    frequency_of_learned,
    label_rows_help,
)
from .weighting import idf_weights, unit_rows, without_wide_rows

BLOCK = 1 << 16  # rows whose votes are in memory at a time


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """The rows from which a candidate model learns, with its settings.

    Attributes
    ----------
    dataset : the rows; the last `n_label_rows` are label rows.
    weight : sample weights, float32 (n,).
    folds : disjoint folds of held-out rows, intp, from which stacking learns; each is scored by models that have not
        learned its rows.
    n_candidates : candidate labels per row by votes.
    cost : cost of the hinge loss; None to choose it, and `all_features`, on some of the rows.
    all_features : whether classifiers have weights for all features of their pairs (`Pairs`), as they always do with at
        most `FEW_ROWS` rows.
    groups : groups of the rows without label rows, int64; rows that are drawn include all rows of a group or none. None
        for independent rows.
    n_label_rows : number of label rows.
    """

    dataset: Dataset
    weight: np.ndarray
    folds: Sequence[np.ndarray]
    n_candidates: int
    cost: float | None = None
    all_features: bool = False
    groups: np.ndarray | None = None
    n_label_rows: int = 0

    def learned(self, fold: int) -> np.ndarray:
        """Return the weights, float32 (n,), with 0 for the rows of a fold."""
        learned = self.weight.copy()
        learned[self.folds[fold]] = 0
        return learned

    @property
    def label_rows_of_seen_labels(self) -> np.ndarray:
        """Return the label rows of labels that other rows have, too, not counting held-out rows.

        The other label rows are always kept, so that held-out rows, like new rows, may have labels of which only the
        text is known.
        """
        Y, first = self.dataset.Y, self.dataset.X.n_rows - self.n_label_rows
        learned = self.weight[:first].copy()
        learned[np.concatenate([np.empty(0, np.intp), *self.folds])] = 0
        seen = np.bincount(Y.columns_of(np.flatnonzero(learned)), minlength=Y.n_cols) > 0
        return first + np.flatnonzero(seen[Y.indices[Y.indptr[first] :]])

    def without_label_rows_of_seen_labels(self) -> CandidateRows:
        """Return the rows without `label_rows_of_seen_labels`."""
        label_rows = self.label_rows_of_seen_labels
        kept = np.setdiff1d(np.arange(self.dataset.X.n_rows), label_rows)
        dataset = Dataset(self.dataset.X.take(kept), self.dataset.Y.take(kept))
        return replace(
            self, dataset=dataset, weight=self.weight[kept], n_label_rows=self.n_label_rows - len(label_rows)
        )


@dataclass(frozen=True, eq=False)
class BaseModels:
    """The base models of stacking, but for the network, and their scores of held-out rows, from which stacking learns.

    model : k-NN index, co-occurrence and linear classifiers, with default stacking. held_out : the held-out rows of all
    folds, with their candidate labels, int32 (h, m). votes, margins, cooccurrence : scores of these labels by models
    that have not learned the rows of the same fold, float32 (h, m). without : votes, margins and co-occurrence of the
    first fold by models without `label_rows_of_seen_labels`; None if there are none.
    """

    rows: CandidateRows
    model: CandidateModel
    held_out: HeldOutLabels
    votes: np.ndarray
    margins: np.ndarray
    cooccurrence: np.ndarray
    without: tuple[np.ndarray, np.ndarray, np.ndarray] | None

    def pairs(self, fold: int, logits: Logits) -> HeldOutPairs:
        """Return the pairs of a fold; `logits` computes those of a network that has not learned the fold."""
        rows, dataset, at = self.rows, self.rows.dataset, self.held_out.fold == fold
        held_out, labels = rows.folds[fold], self.held_out.labels[at]
        frequency = frequency_of_learned(dataset.Y, rows.learned(fold), rows.weight)
        found = logits(dataset.X.take(held_out), labels)
        scores = Inputs(found, self.votes[at], self.margins[at], self.cooccurrence[at])
        truth = dataset.Y.take(held_out).has(labels)
        groups = None if rows.groups is None else rows.groups[held_out]
        n_rows = int(np.count_nonzero(rows.weight))
        return HeldOutPairs(labels, scores, truth, frequency, n_rows, groups, fold)


def fit_base_models(rows: CandidateRows, device: CPU) -> BaseModels:
    """Fit k-NN index, co-occurrence and linear classifiers, once for all folds."""
    X, Y, weight = rows.dataset.X, rows.dataset.Y, rows.weight
    n_rows = X.n_rows - rows.n_label_rows
    scale, without = idf_weights(X.span(0, n_rows)), None
    with device.start():
        weighted = unit_rows(X, scale, device)  # input of k-NN and co-occurrence
        knn = KNNIndex.build(weighted, Y, row_votes(weight, rows.n_label_rows))
        candidates, held_out, votes = _candidates_by_votes(rows, knn, weighted, device)
        validation = draw_validation_rows(weight[:n_rows], candidates, rows.groups)
        cooccurrence = Cooccurrence.count(X, Y, weight, device)
        candidates, held_out, shares = _add_by_cooccurrence(rows, cooccurrence, weighted, candidates, held_out, device)
        del weighted
        unit = unit_rows(X, None, device)  # input of the linear classifiers
        pairs = _learned_pairs(rows, unit, weight, candidates, held_out, device)
        cost, pairs = rows.cost, pairs._replace(all_features=rows.all_features or X.n_rows <= FEW_ROWS)
        if cost is None:
            cost, all_features = choose_cost_and_features(Y, weight, pairs, validation, device)
            pairs = pairs._replace(all_features=all_features)
        rows = replace(rows, cost=cost, all_features=pairs.all_features)
        if rows.folds and len(rows.label_rows_of_seen_labels):
            # First, so that memory never holds both sets of classifiers.
            without = _scores_without_label_rows(rows, scale, unit, candidates, held_out, device)
        linear, margins = _fit_and_score(pairs, cost, held_out, device)
    nothing = Stacking(LogisticStacking(), MarginCalibration())
    label_rows = np.arange(n_rows, X.n_rows, dtype=np.int64)
    scores = NonCandidateScores.from_stacking(nothing.regression)
    model = CandidateModel(scale, knn, cooccurrence, linear, nothing, scores, rows.n_candidates, label_rows)
    return BaseModels(rows, model, held_out, votes, margins, shares, without)


def _scores_without_label_rows(
    rows: CandidateRows, scale: np.ndarray, unit: CSR, candidates: np.ndarray, held_out: HeldOutLabels, device: CPU
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return votes, margins and co-occurrence of the first fold by models without `label_rows_of_seen_labels`."""
    assert rows.cost is not None
    weight, first = rows.weight.copy(), held_out.of_fold(0)
    weight[rows.label_rows_of_seen_labels] = 0
    pairs = _learned_pairs(rows, unit, weight, candidates, held_out, device)._replace(all_features=rows.all_features)
    _, margins = _fit_and_score(pairs, rows.cost, first, device)
    del pairs
    votes, cooccurrence = _scores_of_first_fold(replace(rows, weight=weight), scale, first, device)
    return votes, margins, cooccurrence


def _scores_of_first_fold(
    rows: CandidateRows, scale: np.ndarray, held_out: HeldOutLabels, device: CPU
) -> tuple[np.ndarray, np.ndarray]:
    """Return votes and co-occurrence of the candidates of the first fold, learned from rows of weight above 0."""
    learned = rows.learned(0)
    kept, votes = np.flatnonzero(learned), row_votes(learned, rows.n_label_rows)
    X, Y = rows.dataset.X.take(kept), rows.dataset.Y.take(kept)
    of_fold = unit_rows(rows.dataset.X.take(held_out.rows), scale, device)
    index = KNNIndex.build(unit_rows(X, scale, device), Y, votes[kept])
    found, shares = index.votes(of_fold, rows.n_candidates, device)
    counted = Cooccurrence.count(X, Y, learned[kept], device)
    cooccurrence = counted.candidates(of_fold, held_out.labels, device)[1][:, : held_out.labels.shape[1]]
    return _values_of(found, shares, held_out.labels), cooccurrence


def _values_of(found: np.ndarray, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the values of `labels` (n, m), given those of the labels `found` (n, k); 0 for labels not found."""
    out = np.zeros(labels.shape, np.float32)
    for row, (named, value) in enumerate(zip(found, values, strict=True)):
        _, at, place = np.intersect1d(labels[row], named, return_indices=True)
        out[row, at] = value[place]
    return np.where(labels >= 0, out, 0)


def _candidates_by_votes(
    rows: CandidateRows, knn: KNNIndex, weighted: CSR, device: CPU
) -> tuple[np.ndarray, HeldOutLabels, np.ndarray]:
    """Return the candidates by votes of all rows, int32 (n, n_candidates); those of held-out rows; and their votes.

    Rows of a fold do not vote for each other, as the network that scores the fold has not learned them. Otherwise
    labels that only rows of this fold have would be true candidates, although that network knows no row with them.
    """
    fold = np.full(weighted.n_rows, -1, np.int32)
    for number, held in enumerate(rows.folds):
        fold[held] = number
    held_out = np.flatnonzero(fold >= 0)
    fold = fold[held_out]
    candidates = training_candidates(knn, weighted, rows.n_candidates, device)
    shares = np.empty((len(held_out), rows.n_candidates), np.float32)
    for number, held in enumerate(rows.folds):
        others = replace(knn, weight=knn.weight * (rows.learned(number) > 0))
        candidates[held], shares[fold == number] = others.votes(weighted.take(held), rows.n_candidates, device)
    labels, shares = most_voted(candidates[held_out], shares)
    return candidates, HeldOutLabels(held_out, labels, fold), padded_votes(shares)


def most_voted(labels: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the candidates of prediction, those with the most votes, and their votes; both inputs are (n, size)."""
    most = np.argsort(-shares, axis=1)[:, : n_voted(shares.shape[1])]
    return np.take_along_axis(labels, most, axis=1), np.take_along_axis(shares, most, axis=1)


def _add_by_cooccurrence(
    rows: CandidateRows, counted: Cooccurrence, weighted: CSR, candidates: np.ndarray, held_out: HeldOutLabels,
    device: CPU,
) -> tuple[np.ndarray, HeldOutLabels, np.ndarray]:  # fmt: skip
    """Add candidates by co-occurrence: `N_COOCCURRING_IN_TRAINING` to all rows, `N_COOCCURRING` to held-out rows.

    Return the candidates of all rows, those of held-out rows, and the co-occurrence of the latter. Counts for held-out
    rows leave out their fold.
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
    """Return the pairs that the classifiers learn, with random negatives, which are never label rows."""
    weight = without_wide_rows(X, rows.dataset.Y, weight)
    pairs = find_pairs(X, rows.dataset.Y, weight, candidates, device, held_out)
    return with_random_negatives(pairs, X.n_rows - rows.n_label_rows, device)


def _fit_and_score(
    pairs: Pairs, cost: float, held_out: HeldOutLabels, device: CPU
) -> tuple[LinearClassifiers, np.ndarray]:
    """Return classifiers that have learned all pairs, and out-of-fold margins of the held-out rows."""
    linear, margins = LinearClassifiers.fit_and_score(pairs, cost, held_out, device)
    return linear, np.where(np.isnan(margins), MARGIN_WITHOUT_ROWS, margins)


def keep_useful_label_rows(base: BaseModels, logits: Logits, device: CPU) -> BaseModels:
    """Return the base models, fitted again without `label_rows_of_seen_labels` if these do not help.

    They do not help if stacking of votes, margins and co-occurrence has a lower log loss on the first fold without
    them. logits : computes the logits of a network that has not learned this fold.
    """
    if base.without is None or label_rows_help(base.pairs(0, logits), *base.without):
        return base
    return fit_base_models(base.rows.without_label_rows_of_seen_labels(), device)


def fit_candidate_model(
    base: BaseModels, folds: Sequence[HeldOutPairs], device: CPU
) -> tuple[CandidateModel, HeldOutScores | None]:
    """Fit the stacking of a candidate model to held-out pairs; calibrate its classifiers in place.

    Return the model, and the scores of these pairs, None if there are none.
    """
    model = base.model
    if not folds:
        return model, None
    full_frequency = model.knn.frequency(model.knn.Y.n_cols)
    with device.start():
        stacking, scores = fit_stacking(folds, full_frequency, device)
        exclusions = _exclusions(base.rows, [fold.number for fold in folds], full_frequency)
        stacking, scores = fit_exclusion(folds, stacking, scores, *exclusions, device)
    assert isinstance(model.linear, LinearClassifiers)  # not compact: it has just been fitted
    linear = model.linear.calibrate(*stacking.calibration.factors(full_frequency))
    return replace(model, linear=linear, stacking=stacking), scores


def _exclusions(rows: CandidateRows, folds: Sequence[int], frequency: np.ndarray) -> tuple[list[Exclusion], Exclusion]:
    """Return the exclusions counted without each of these folds, and those of all rows; label rows never count."""
    labels, first = most_frequent(frequency), rows.dataset.X.n_rows - rows.n_label_rows
    weights = *map(rows.learned, folds), rows.weight
    *of_folds, full = (Exclusion.count(rows.dataset.Y.take(np.flatnonzero(w[:first])), labels) for w in weights)
    return of_folds, full


def training_candidates(knn: KNNIndex, rows: CSR, size: int, device: CPU) -> np.ndarray:
    """Return the candidate labels of each training row by votes, int32 (n, size); no row votes for itself.

    rows : the training rows, of norm 1, in the order of the index. The device must have been started.
    """
    candidates = np.empty((rows.n_rows, size), np.int32)
    for first in range(0, rows.n_rows, BLOCK):
        last = min(first + BLOCK, rows.n_rows)
        candidates[first:last], _ = knn.votes(rows.span(first, last), size, device, own=first)
    return candidates
