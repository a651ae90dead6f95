"""The candidate model: proposes candidate labels for a row and scores them by stacking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data.csr import CSR
from ..devices.cpu import CPU
from .boosted_trees import NO_TREES
from .compact import CompactLinearClassifiers
from .cooccurrence import N_COOCCURRING, N_COOCCURRING_IN_TRAINING, Cooccurrence
from .exclusion import NO_EXCLUSION
from .knn import MAX_POSTINGS, N_NEIGHBORS, KNNIndex, row_votes
from .linear import LinearClassifiers, find_pairs
from .new_labels import AddedRows, fit_new_labels
from .non_candidates import NonCandidateScores
from .stacking import MIN_COOCCURRENCE, MIN_VOTE, Inputs, Stacking
from .weighting import idf, unit_rows, without_wide_rows

# Prediction uses half of the candidates by votes that training uses as negatives, but at least this many: the rest
# rarely ranks first.
LEAST_VOTED = 64
# Linear classifiers and trees score half as many candidates as there are by votes, but at least this many
# (docs/decisions/prediction.md).
LEAST_WITH_MARGINS = 40

# Computes the network's logits, float32 (n, M), of rows X and their labels, int32 (n, M); 0 for label -1.
Logits = Callable[[CSR, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class CandidateModel:
    """k-NN index, co-occurrence, linear classifiers and stacking.

    feature_weights : of k-NN and co-occurrence, float32 (F,). non_candidates : the scores of labels that are not
    candidates of their row. n_voted : candidates per training row by votes; co-occurrence adds
    `N_COOCCURRING_IN_TRAINING`; `n_in_prediction` has the number in prediction. label_rows : rows of the index that are
    label rows, int64, ascending.
    """

    feature_weights: np.ndarray
    knn: KNNIndex
    cooccurrence: Cooccurrence
    linear: LinearClassifiers | CompactLinearClassifiers
    stacking: Stacking
    non_candidates: NonCandidateScores
    n_voted: int
    label_rows: np.ndarray

    def score(self, X: CSR, logits: Logits, device: CPU) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidate labels of each row, int32 (n, m), and their scores, float32 (n, m).

        They are the labels with the most votes and `N_COOCCURRING` more by co-occurrence, unordered, padded with -1.
        """
        labels, found = self.inputs(X, logits, device)
        return labels, self.stacking.scores(labels, found, self.n_excluding, device)

    def inputs(self, X: CSR, logits: Logits, device: CPU) -> tuple[np.ndarray, Inputs]:
        """Return the candidate labels of each row, int32 (n, m), and the inputs of stacking, float32 (n, m)."""
        with device.start():
            scaled = unit_rows(X, self.feature_weights, device)
            labels, votes = self.knn.votes(scaled, n_voted_in_prediction(self.n_voted), device)
            labels, cooccurrence = self.cooccurrence.candidates(scaled, labels, device)
            margins = self.linear.margins(unit_rows(X, None, device), labels, device)
        return labels, Inputs(logits(X, labels), padded_votes(votes), margins, cooccurrence)

    def with_rows(self, X: CSR, Y: CSR, weight: np.ndarray, n_label_rows: int, device: CPU) -> CandidateModel:
        """Return a model that has also learned these rows, which may have more features and labels.

        k-NN index and co-occurrence are those that `fit` would have counted, but for labels that are not among the most
        frequent of a feature. Linear classifiers are trained on these rows if the label is a true label or a candidate
        of one, those of new labels on earlier rows, too; their calibration follows the label frequencies. Stacking does
        not change.

        weight : sample weights, float32 (n,). n_label_rows : number of the last rows that are label rows.
        """
        assert isinstance(self.linear, LinearClassifiers)  # a compact model cannot be trained further
        n_known = self.knn.Y.n_rows
        of_new_features = idf(np.ones(X.n_cols - len(self.feature_weights)), n_known)
        feature_weights = np.concatenate([self.feature_weights, of_new_features])
        with device.start():
            rows = unit_rows(X, feature_weights, device)
            knn = self.knn.with_rows(rows, Y, row_votes(weight, n_label_rows), self.cooccurrence.totals > 0, device)
            cooccurrence = self.cooccurrence.with_rows(X, Y, weight, device)
            candidates, _ = knn.votes(rows, self.n_voted, device, own=n_known)
            candidates, _ = cooccurrence.candidates(rows, candidates, device, N_COOCCURRING_IN_TRAINING)
            frequencies = self.knn.frequency(Y.n_cols), knn.frequency(Y.n_cols)
            calibrations = [self.stacking.calibration.factor_and_shift(each) for each in frequencies]
            unit = unit_rows(X, None, device)
            is_new = knn.new_labels(self.knn)
            # A row without features is a candidate of no label: it would raise biases, with no negatives against that.
            weight = np.where(np.diff(X.indptr) > 0, weight, np.float32(0))
            known, negatives = Y.where(~is_new[Y.indices]), np.where(is_new[candidates], np.int32(-1), candidates)
            pairs = find_pairs(unit, known, without_wide_rows(unit, known, weight), negatives, device)
            linear = self.linear.with_rows(pairs, frequencies[0], calibrations, device)
            if is_new.any():
                added = AddedRows(rows, Y, weight, candidates, feature_weights)
                found = fit_new_labels(self.knn, knn, added, is_new, self.linear.cost, device)
                linear = linear.with_labels(np.flatnonzero(is_new), found.calibrate_in_place(*calibrations[1]), device)
        trees = self.stacking.trees and replace(self.stacking.trees, frequency=frequencies[1])
        stacking = self.stacking._replace(trees=trees)
        label_rows = np.append(self.label_rows, np.arange(knn.Y.n_rows - n_label_rows, knn.Y.n_rows, dtype=np.int64))
        return replace(
            self, feature_weights=feature_weights, knn=knn, cooccurrence=cooccurrence, linear=linear, stacking=stacking,
            label_rows=label_rows,
        )  # fmt: skip

    @property
    def n_excluding(self) -> int:
        """Return how many candidates of a row can exclude others: as many as have margins for any k."""
        return n_with_margins(self.n_voted, 1)

    def kernel_arguments(self) -> tuple[Any, ...]:
        """Return the arrays and constants of the model in the order of the arguments of `best_candidates`."""
        trees, exclusion = self.stacking.trees or NO_TREES, self.stacking.exclusion or NO_EXCLUSION
        knn, cooccurrence, linear = self.knn.arrays, self.cooccurrence.arrays, (*self.linear.tables, self.linear.bias)
        limits = MIN_VOTE, MIN_COOCCURRENCE
        sizes = n_voted_in_prediction(self.n_voted), N_COOCCURRING, N_NEIGHBORS, MAX_POSTINGS
        corrections = *trees.arrays, self.n_excluding, *exclusion.arrays
        weights = np.float32(self.stacking.selection), np.float32(self.stacking.regression)
        return self.feature_weights, *knn, *cooccurrence, *linear, *weights, *corrections, *limits, *sizes


def n_voted_in_prediction(n_voted: int) -> int:
    """Return the number of candidates per row by votes in prediction, given that in training."""
    return min(n_voted, max(LEAST_VOTED, n_voted // 2))


def n_in_prediction(n_voted: int) -> int:
    """Return the number of candidates per row in prediction: those by votes and those by co-occurrence."""
    return n_voted_in_prediction(n_voted) + N_COOCCURRING


def n_with_margins(n_voted: int, k: int) -> int:
    """Return how many candidates per row linear classifiers and trees score in order to find the best `k`."""
    return min(n_in_prediction(n_voted), max(LEAST_WITH_MARGINS, n_voted_in_prediction(n_voted) // 2, 2 * k))


def padded_votes(votes: np.ndarray) -> np.ndarray:
    """Return shares of votes, float32 (n, m), padded with 0 for the `N_COOCCURRING` candidates by co-occurrence."""
    return np.pad(votes, ((0, 0), (0, N_COOCCURRING)))
