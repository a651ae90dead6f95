"""Fit a candidate model: first the parts that need no network, then stacking with the network's logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..data.csr import CSR, Dataset
from ..devices.cpu import CPU
from .cooccurrence import N_COOCCURRING, N_COOCCURRING_IN_TRAINING, Cooccurrence
from .cost import ALL_FEATURES_ROWS, choose_cost_and_features, draw_validation_rows
from .exclusion import Exclusion, most_frequent
from .knn import KNNIndex, row_votes
from .linear import MARGIN_WITHOUT_ROWS, HeldOutLabels, LinearClassifiers, Pairs, find_pairs, with_random_negatives
from .model import CandidateModel, n_voted_in_prediction, padded_votes
from .non_candidates import NonCandidateScores
from .stacking import Inputs, LogisticStacking, MarginCalibration, Stacking
from .stacking_training import HeldOutPairs, HeldOutScores, fit_exclusion, fit_stacking, frequency_of_learned
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
    n_voted : candidate labels per row by votes, to which co-occurrence adds others.
    cost : cost of the hinge loss; None to choose it on validation rows. With more than `ALL_FEATURES_ROWS` rows,
        classifiers have weights for all features of their pairs (`Pairs`) only if the cost is chosen and they help on
        these rows.
    groups : groups of the rows without label rows, int64; rows that are drawn include all rows of a group or none. None
        for independent rows.
    n_label_rows : number of label rows.
    """

    dataset: Dataset
    weight: np.ndarray
    folds: Sequence[np.ndarray]
    n_voted: int
    cost: float | None = None
    groups: np.ndarray | None = None
    n_label_rows: int = 0

    def weight_without_fold(self, fold: int) -> np.ndarray:
        """Return the weights, float32 (n,), with 0 for the rows of a fold."""
        weight = self.weight.copy()
        weight[self.folds[fold]] = 0
        return weight


@dataclass(frozen=True, eq=False)
class BaseModels:
    """The base models of stacking, but for the network, and their scores of held-out rows, from which stacking learns.

    model : k-NN index, co-occurrence and linear classifiers, with default stacking. held_out : the held-out rows of all
    folds, with their candidate labels, int32 (h, m). votes, margins, cooccurrence : scores of these labels by models
    that have not learned the rows of the same fold, float32 (h, m). frequency : label frequencies without the rows of
    each fold, float32 (folds, L).
    """

    rows: CandidateRows
    model: CandidateModel
    held_out: HeldOutLabels
    votes: np.ndarray
    margins: np.ndarray
    cooccurrence: np.ndarray
    frequency: np.ndarray

    def pairs(self, logits: Mapping[int, np.ndarray]) -> HeldOutPairs:
        """Return the pairs of some folds, given ascending numbers of these and the logits of their candidates.

        The logits of a fold, float32 (n, m), are those of a network that has not learned it.
        """
        at = np.concatenate([np.flatnonzero(self.held_out.fold == fold) for fold in logits])
        held_out, labels, fold = (each[at] for each in self.held_out)
        others = (each[at] for each in (self.votes, self.margins, self.cooccurrence))
        inputs = Inputs(np.concatenate([*logits.values()]), *others)
        truth = self.rows.dataset.Y.take(held_out).has(labels)
        groups = None if self.rows.groups is None else self.rows.groups[held_out]
        n_rows = int(np.count_nonzero(self.rows.weight))
        return HeldOutPairs(labels, inputs, truth, fold, self.frequency, n_rows, groups)


def fit_base_models(rows: CandidateRows, device: CPU) -> BaseModels:
    """Fit k-NN index, co-occurrence and linear classifiers, once for all folds."""
    X, Y, weight = rows.dataset.X, rows.dataset.Y, rows.weight
    n_rows = X.n_rows - rows.n_label_rows
    feature_weights = idf_weights(X.span(0, n_rows))
    with device.start():
        weighted = unit_rows(X, feature_weights, device)  # input of k-NN and co-occurrence
        knn = KNNIndex.build(weighted, Y, row_votes(weight, rows.n_label_rows))
        candidates, held_out, votes = _candidates_by_votes(rows, knn, weighted, device)
        validation = draw_validation_rows(weight[:n_rows], candidates, rows.groups)
        counted = Cooccurrence.count(X, Y, weight, device)
        candidates, held_out, cooccurrence = _add_by_cooccurrence(rows, counted, weighted, candidates, held_out, device)
        del weighted
        unit = unit_rows(X, None, device)  # input of the linear classifiers
        pairs = _learned_pairs(rows, unit, candidates, held_out, device)
        cost, pairs = rows.cost, pairs._replace(all_features=X.n_rows <= ALL_FEATURES_ROWS)
        if cost is None:
            cost, all_features = choose_cost_and_features(Y, weight, pairs, validation, device)
            pairs = pairs._replace(all_features=all_features)
        linear, margins = _fit_and_score(pairs, cost, held_out, device)
    folds = [frequency_of_learned(Y, rows.weight_without_fold(fold), weight) for fold in range(len(rows.folds))]
    frequency = np.array(folds, np.float32).reshape(len(folds), Y.n_cols)
    nothing = Stacking(LogisticStacking(), MarginCalibration())
    label_rows = np.arange(n_rows, X.n_rows, dtype=np.int64)
    others = NonCandidateScores.from_stacking(nothing.regression)
    model = CandidateModel(feature_weights, knn, counted, linear, nothing, others, rows.n_voted, label_rows)
    return BaseModels(rows, model, held_out, votes, margins, cooccurrence, frequency)


def _candidates_by_votes(
    rows: CandidateRows, knn: KNNIndex, weighted: CSR, device: CPU
) -> tuple[np.ndarray, HeldOutLabels, np.ndarray]:
    """Return the candidates by votes of all rows, int32 (n, n_voted); those of held-out rows; and their votes.

    Rows of a fold do not vote for each other, as the network that scores the fold has not learned them. Otherwise
    labels that only rows of this fold have would be true candidates, although that network knows no row with them.
    """
    fold = np.full(weighted.n_rows, -1, np.int32)
    for number, held in enumerate(rows.folds):
        fold[held] = number
    held_out = np.flatnonzero(fold >= 0)
    fold = fold[held_out]
    candidates = training_candidates(knn, weighted, rows.n_voted, device)
    votes = np.empty((len(held_out), rows.n_voted), np.float32)
    for number, held in enumerate(rows.folds):
        others = replace(knn, weight=knn.weight * (rows.weight_without_fold(number) > 0))
        candidates[held], votes[fold == number] = others.votes(weighted.take(held), rows.n_voted, device)
    labels, votes = most_voted(candidates[held_out], votes)
    return candidates, HeldOutLabels(held_out, labels, fold), padded_votes(votes)


def most_voted(labels: np.ndarray, votes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the candidates of prediction, those with the most votes, and their votes; both inputs are (n, size)."""
    most = np.argsort(-votes, axis=1)[:, : n_voted_in_prediction(votes.shape[1])]
    return np.take_along_axis(labels, most, axis=1), np.take_along_axis(votes, most, axis=1)


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
    cooccurrence = np.empty(labels.shape, np.float32)
    for fold, held in enumerate(rows.folds):
        others = Cooccurrence.count(rows.dataset.X, rows.dataset.Y, rows.weight_without_fold(fold), device)
        of_fold, at = weighted.take(held), held_out.fold == fold
        labels[at], cooccurrence[at] = others.candidates(of_fold, held_out.labels[at], device)
    return more, held_out._replace(labels=labels), cooccurrence


def _learned_pairs(rows: CandidateRows, X: CSR, candidates: np.ndarray, held_out: HeldOutLabels, device: CPU) -> Pairs:
    """Return the pairs that the classifiers learn, with random negatives, which are never label rows."""
    weight = without_wide_rows(X, rows.dataset.Y, rows.weight)
    pairs = find_pairs(X, rows.dataset.Y, weight, candidates, device, held_out)
    return with_random_negatives(pairs, X.n_rows - rows.n_label_rows, device)


def _fit_and_score(
    pairs: Pairs, cost: float, held_out: HeldOutLabels, device: CPU
) -> tuple[LinearClassifiers, np.ndarray]:
    """Return classifiers that have learned all pairs, and out-of-fold margins of the held-out rows."""
    linear, margins = LinearClassifiers.fit_and_score(pairs, cost, held_out, device)
    return linear, np.where(np.isnan(margins), MARGIN_WITHOUT_ROWS, margins)


def fit_candidate_model(
    base: BaseModels, pairs: HeldOutPairs | None, device: CPU
) -> tuple[CandidateModel, HeldOutScores | None]:
    """Fit the stacking of a candidate model to held-out pairs; calibrate its classifiers in place.

    Return the model, and the log odds of these pairs, None if there are none.
    """
    model = base.model
    if pairs is None:
        return model, None
    full_frequency = model.knn.frequency(model.knn.Y.n_cols)
    with device.start():
        stacking, log_odds = fit_stacking(pairs, full_frequency, device)
        exclusions = _exclusions(base.rows, full_frequency)
        stacking, log_odds = fit_exclusion(pairs, stacking, log_odds, *exclusions, device)
    assert isinstance(model.linear, LinearClassifiers)  # not compact: it has just been fitted
    linear = model.linear.calibrate_in_place(*stacking.calibration.factor_and_shift(full_frequency))
    return replace(model, linear=linear, stacking=stacking), HeldOutScores(pairs.labels, log_odds)


def _exclusions(rows: CandidateRows, frequency: np.ndarray) -> tuple[list[Exclusion], Exclusion]:
    """Return the exclusions counted without each fold, and those of all rows; label rows never count."""
    labels, first = most_frequent(frequency), rows.dataset.X.n_rows - rows.n_label_rows
    weights = *map(rows.weight_without_fold, range(len(rows.folds))), rows.weight
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
