"""The candidate model: proposes candidate labels for a row and scores them by stacking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..data.csr import CSR, Dataset
from ..devices.cpu import CPU
from .boosted_trees import NO_TREES
from .compact import CompactLinearClassifiers
from .cooccurrence import N_MORE, Cooccurrence
from .held_out_pairs import HeldOutPairs, HeldOutScores, fit_stacking, label_frequencies, label_rows_help
from .knn import MAX_POSTINGS, N_NEIGHBORS, KNNIndex, row_votes
from .linear import LinearClassifiers
from .stacking import MIN_COOCCURRENCE, MIN_VOTE, Calibration, Inputs, LogisticStacking, Stacking
from .weighting import idf_weights, unit_rows

BLOCK = 1 << 16  # rows whose votes are held in memory together
# Candidates of the neighbors that prediction looks at, at least, and otherwise half of those that training used as
# negatives: the rest rarely ranks first.
VOTED = 64
# Candidates that margins and trees score, at least, and otherwise half of them (docs/decisions/prediction.md).
KEPT = 40
NON_CANDIDATE_MARGIN = np.float32(-1)  # stands for the linear classifier of a label that is not a candidate of a row

# The network's logits float32 (rows, M), given rows X and labels (rows, M); 0 where a label is -1.
Logits = Callable[[CSR, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class CandidateModel:
    """k-NN index, co-occurrence, linear classifiers and stacking.

    scale : float32 (F,), the weight of each feature for the neighbors. size : candidates of a training row from its
    neighbors, M; co-occurrence adds `N_MORE`.
    """

    scale: np.ndarray
    knn: KNNIndex
    cooccurrence: Cooccurrence
    linear: LinearClassifiers | CompactLinearClassifiers
    stacking: Stacking
    size: int

    def score(self, X: CSR, logits: Logits, device: CPU) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidate labels of each row and their scores, int32 and float32 (n, m), unordered, padded by -1.

        A row gets those with the most votes and `N_MORE` by co-occurrence.
        """
        labels, found = self.inputs(X, logits, device)
        return labels, self.stacking.scores(labels, found, device)

    def inputs(self, X: CSR, logits: Logits, device: CPU) -> tuple[np.ndarray, Inputs]:
        """Return the candidate labels of each row, int32, and the inputs of the stacking, float32; all (n, m)."""
        with device.start():
            scaled = unit_rows(X, self.scale, device)
            labels, votes = self.knn.votes(scaled, n_voted(self.size), device)
            labels, cooccurrence = self.cooccurrence.candidates(scaled, labels, device)
            margins = self.linear.margins(unit_rows(X, None, device), labels, device)
        return labels, (logits(X, labels), with_more(votes), margins, cooccurrence)

    def kernel_arguments(self) -> tuple[Any, ...]:
        """Return what was learned, and constants, in the order of the arguments of `best_listed`."""
        trees = self.stacking.trees or NO_TREES
        arrays = self.scale, *self.knn.arrays, *self.cooccurrence.arrays, *self.linear.tables, self.linear.bias
        limits = MIN_VOTE, MIN_COOCCURRENCE
        sizes = n_voted(self.size), N_MORE, N_NEIGHBORS, MAX_POSTINGS
        return *arrays, np.float32(self.stacking.regression), *trees.arrays, *limits, *sizes

    def non_candidate_scores(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores of labels that are not candidates of their row: the network's alone."""
        return self.stacking.regression.scores(logits, MIN_VOTE, NON_CANDIDATE_MARGIN, MIN_COOCCURRENCE)


def n_voted(size: int) -> int:
    """Return how many of `size` candidates of the neighbors prediction looks at: those with the most votes."""
    return min(size, max(VOTED, size // 2))


def n_kept(size: int, k: int) -> int:
    """Return how many of the candidates margins and trees score where the best `k` are asked for."""
    proposed = n_voted(size) + N_MORE
    return min(proposed, max(KEPT, proposed // 2, 2 * k))


def fit_candidates(
    dataset: Dataset,
    weight: np.ndarray | None,
    held_out: np.ndarray,
    size: int,
    logits: Logits,
    device: CPU,
    *,
    thorough: bool = False,
    grouped: bool = False,
    n_label_rows: int = 0,
) -> tuple[CandidateModel, HeldOutScores | None]:
    """Train a candidate model of `size` candidate labels a row; weight : float32 (n,), sample weights, None for ones.

    With `thorough`, linear classifiers are trained again on all rows after stacking: it holds out many. Also return the
    scores of the held-out rows by models that have not learned from them, None where nothing was stacked. With
    `grouped`, held-out rows do not vote for each other either: the rows of their group are alike.

    n_label_rows : how many of the rows, the last ones, are made of label texts, each of one label. Those of labels that
    other rows have are left out where linear classifiers tell the candidates of held-out rows worse apart with them.
    """
    X, Y = dataset.X, dataset.Y
    weight = np.ones(X.n_rows, np.float32) if weight is None else weight
    n_rows = X.n_rows - n_label_rows
    scale = idf_weights(X.span(0, n_rows))
    learned = weight.copy()
    learned[held_out] = 0
    seen = np.bincount(Y.row_entries(np.flatnonzero(weight[:n_rows])), minlength=Y.n_cols) > 0
    of_seen = n_rows + np.flatnonzero(seen[Y.indices[Y.indptr[n_rows] :]])
    with device.start():
        rows = unit_rows(X, scale, device)
        votes = row_votes(weight, n_label_rows)
        knn = KNNIndex.build(rows, Y, votes * (learned > 0) if grouped else votes)
        cooccurrence = Cooccurrence.count(X, Y, learned, device)
        candidates, asked = training_candidates(knn, rows, held_out, size, device)
        candidates, _ = cooccurrence.candidates(rows, candidates, device)
        scaled, rows = rows.take(held_out), unit_rows(X, None, device)
        labels, shares = cooccurrence.candidates(scaled, asked.labels, device)
        if decides := len(of_seen) > 0 and len(held_out) > 0:  # before the others, so that memory holds one of them
            learned[of_seen] = 0
            without = LinearClassifiers.fit(rows, Y, learned, candidates, device)
            margins_without = without.margins(rows.take(held_out), labels, device)
            del without
            learned[of_seen] = weight[of_seen]
        linear = LinearClassifiers.fit(rows, Y, learned, candidates, device)
    stacking, found = Stacking(LogisticStacking(), Calibration(), None), None
    if len(held_out):
        with device.start():
            margins = linear.margins(rows.take(held_out), labels, device)
        scores = logits(X.take(held_out), labels), with_more(asked.shares), margins, shares
        train_frequency, full_frequency = label_frequencies(Y, learned, weight)
        pairs = HeldOutPairs(labels, scores, Y.take(held_out).has(labels), train_frequency)
        if decides and not label_rows_help(pairs, margins_without):
            kept = np.setdiff1d(np.arange(X.n_rows), of_seen)
            del linear, knn, cooccurrence
            given, n_kept = Dataset(X.take(kept), Y.take(kept)), n_label_rows - len(of_seen)
            return fit_candidates(
                given, weight[kept], held_out, size, logits, device,
                thorough=thorough, grouped=grouped, n_label_rows=n_kept,
            )  # fmt: skip
        with device.start():
            stacking, found = fit_stacking(pairs, full_frequency, device)
            if thorough:
                del linear  # frees its memory before the new classifiers need as much
                linear = LinearClassifiers.fit(rows, Y, weight, candidates, device)
        linear = linear.calibrate(*stacking.calibration.factors(full_frequency))
    with device.start():
        cooccurrence = Cooccurrence.count(X, Y, weight, device)
    knn = replace(knn, weight=votes)
    return CandidateModel(scale, knn, cooccurrence, linear, stacking, size), found


def with_more(votes: np.ndarray) -> np.ndarray:
    """Return shares of votes, float32 (n, m), with those of `N_MORE` candidates more, which have none."""
    return np.pad(votes, ((0, 0), (0, N_MORE)))


class HeldOutVotes(NamedTuple):
    """Candidate labels of the held-out rows, int32, and their shares of the votes, float32 (n, m)."""

    labels: np.ndarray
    shares: np.ndarray


def training_candidates(
    knn: KNNIndex, rows: CSR, held_out: np.ndarray, size: int, device: CPU
) -> tuple[np.ndarray, HeldOutVotes]:
    """Return the candidate labels of every training row, int32 (n, size), and those that are scored of held-out rows.

    No row votes for itself. rows : of norm 1, in the order of the index. The device is started.
    """
    candidates, shares = np.empty((rows.n_rows, size), np.int32), np.empty((len(held_out), size), np.float32)
    for first in range(0, rows.n_rows, BLOCK):
        last = min(first + BLOCK, rows.n_rows)
        candidates[first:last], found = knn.votes(rows.span(first, last), size, device, own=first)
        held = slice(*np.searchsorted(held_out, (first, last)))
        shares[held] = found[held_out[held] - first]
    most = np.argsort(-shares, axis=1)[:, : n_voted(size)]
    labels, shares = (np.take_along_axis(each, most, axis=1) for each in (candidates[held_out], shares))
    return candidates, HeldOutVotes(labels, shares)
