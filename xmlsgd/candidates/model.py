"""The candidate model: proposes candidate labels for a row and scores them by stacking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..data.csr import CSR, HELD_OUT, Dataset
from ..devices.cpu import CPU
from .boosted_stacking import NO_TREES, BoostedStacking
from .compact import CompactLinearClassifiers
from .knn import MAX_POSTINGS, MIN_POSTINGS, N_NEIGHBORS, KNNIndex
from .linear import LinearClassifiers
from .stacking import MIN_VOTE, LogisticStacking, meta_features
from .weighting import idf, idf_weights, unit_rows

BLOCK = 1 << 16  # rows whose votes are held in memory together
LARGEST_SHARE = 10  # at most one row in ten is held out
# Candidates that prediction scores, at least, and otherwise half of those that training used as negatives: the rest
# rarely ranks first.
SCORED = 64
SCORED_NEAR = 32  # of a row near a training row, at least, and otherwise half of what other rows get
FAR_SHARE = 0.1  # of the held-out rows, those farthest from training rows, count as far
RECALL_GAIN = 0.005  # of the held-out rows' true labels, for which a query reads twice as many postings
# Share of the true labels among the best five of near rows for which these have all candidates scored.
NEAR_GAIN = 0.005
NEVER = 2.0  # in place of a cosine that counts as near
MIN_DISTANCE = np.float32(1e-3)  # of copies of training rows, so that some row has a weight


class HeldOutSize(NamedTuple):
    """How many rows to hold out for stacking: a share of all within [wanted, most], but at most a tenth of all.

    If that is fewer than `least`, none.
    """

    share: float
    wanted: int
    most: int
    least: int

    def of(self, n_rows: int) -> int:
        """Return the number of rows."""
        n = min(max(int(self.share * n_rows), self.wanted), self.most, n_rows // LARGEST_SHARE)
        return n if n >= self.least else 0


# Logistic regression has four weights to learn. Trees need 1,000 rows to be better than it, and with 5,000 are nearly
# as good as with 50,000 (docs/decisions/candidates.md).
HELD_OUT_LOGISTIC, HELD_OUT_BOOSTED = HeldOutSize(0.02, 400, 2048, 100), HeldOutSize(0.1, 1000, 10_000, 1000)

# The network's logits float32 (rows, M), given rows X and labels (rows, M); 0 where a label is -1.
Logits = Callable[[CSR, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class CandidateModel:
    """k-NN index, linear classifiers and stacking.

    scale : float32 (F,), the weight of each feature. size : candidate labels of a training row, M. near : cosine of the
    nearest training row above which only `n_near` candidates are scored. boosted : trees that score the candidates
    instead of `stacking`, or None.
    """

    scale: np.ndarray
    knn: KNNIndex
    linear: LinearClassifiers | CompactLinearClassifiers
    stacking: LogisticStacking
    size: int
    near: float
    boosted: BoostedStacking | None = None

    def score(self, X: CSR, logits: Logits, device: CPU) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidate labels of each row and their scores, int32 and float32 (n, m), unordered, padded by -1.

        A row gets the candidates with the most votes.
        """
        with device.start():
            rows = unit_rows(X, self.scale, device)
            fewer = self.near, n_near(self.size)
            labels, votes, _ = self.knn.votes(rows, n_scored(self.size), device, fewer=fewer)
            margins = self.linear.margins(unit_rows(X, None, device), labels, device)
        Z = logits(X, labels)
        if self.boosted is None:
            return labels, self.stacking.scores(Z, votes, margins)
        with device.start():
            return labels, self.boosted.scores(labels, Z, votes, margins, device)

    def kernel_arguments(self) -> tuple[Any, ...]:
        """Return what was learned, and constants, in the order of the arguments of `best_listed`."""
        trees = NO_TREES if self.boosted is None else self.boosted
        arrays = self.scale, *self.knn.arrays, *self.linear.tables, self.linear.bias
        sizes = n_scored(self.size), N_NEIGHBORS, self.knn.max_postings, np.float32(self.near), n_near(self.size)
        return *arrays, np.float32(self.stacking), *trees.arrays, MIN_VOTE, *sizes

    def non_candidate_scores(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores of labels that are not candidates of their row: no votes, and the margin -1."""
        return self.stacking.scores(logits, MIN_VOTE, np.float32(-1))

    def extended(self, X: CSR, Y: CSR, weight: np.ndarray | None, device: CPU) -> CandidateModel:
        """Return a model whose k-NN index also holds these rows, which may have more features and labels.

        Linear classifiers and stacking do not change: a new label has the margin -1 and frequency 0.
        """
        weight = np.ones(X.n_rows, np.float32) if weight is None else weight
        assert isinstance(self.linear, LinearClassifiers)  # a compact model cannot be trained further
        fresh = idf(np.ones(X.n_cols - len(self.scale)), self.knn.Y.n_rows)
        scale = np.concatenate([self.scale, fresh])
        weights, more = self.linear.weights, Y.n_cols - self.linear.weights.n_rows
        indptr = np.concatenate([weights.indptr, np.full(more, weights.nnz)])
        linear = LinearClassifiers(
            CSR(indptr, weights.indices, weights.data, X.n_cols),
            np.concatenate([self.linear.bias, np.full(more, -1, np.float32)]),
        )
        with device.start():
            rows = unit_rows(X, scale, device)
        knn = self.knn.with_rows(rows, Y, weight)
        boosted = None if self.boosted is None else self.boosted.extended(Y.n_cols)
        return CandidateModel(scale, knn, linear, self.stacking, self.size, self.near, boosted)


def n_scored(size: int) -> int:
    """Return how many of `size` candidates prediction scores: those with the most votes."""
    return min(size, max(SCORED, size // 2))


def n_near(size: int) -> int:
    """Return how many candidates are scored for a row that is near a training row."""
    return min(size, max(SCORED_NEAR, n_scored(size) // 2))


def held_out_rows(n_rows: int, seed: int, held_out: HeldOutSize = HELD_OUT_LOGISTIC) -> np.ndarray:
    """Return the rows to hold out from network and linear classifiers for stacking; ascending, possibly none."""
    n = held_out.of(n_rows)
    return np.sort(np.random.default_rng((seed, HELD_OUT)).choice(n_rows, n, replace=False))


def fit_candidates(
    dataset: Dataset,
    weight: np.ndarray | None,
    held_out: np.ndarray,
    size: int,
    logits: Logits,
    device: CPU,
    boosted: bool = False,
) -> CandidateModel:
    """Train a candidate model of `size` candidate labels a row; weight : float32 (n,), sample weights, None for ones.

    With `boosted`, linear classifiers are trained again on all rows after stacking: it holds out many.
    """
    X, Y = dataset.X, dataset.Y
    weight = np.ones(X.n_rows, np.float32) if weight is None else weight
    scale = idf_weights(X)
    learned = weight.copy()
    learned[held_out] = 0
    with device.start():
        rows = unit_rows(X, scale, device)
        knn = build_index(rows, Y, weight, held_out, size, device)
        candidates, votes = training_candidates(knn, rows, held_out, size, device)
        rows = unit_rows(X, None, device)
        linear = LinearClassifiers.fit(rows, Y, learned, candidates, device)
    stacking, trees, near = LogisticStacking(), None, 1.0
    if len(held_out):
        labels = votes.labels
        X_held, Y_held = X.take(held_out), Y.take(held_out)
        with device.start():
            margins = linear.margins(rows.take(held_out), labels, device)
        valid, Z = labels >= 0, logits(X_held, labels)
        pairs = Z[valid], votes.shares[valid], margins[valid]
        counts = votes.counts(valid)
        is_true = has_label(Y_held, labels)
        truth = is_true[valid]
        before, all_rows = label_frequencies(Y, learned, weight)
        frequency = before[labels[valid]]
        if not boosted:
            stacking, calibration = LogisticStacking.fit_calibrated(meta_features(*pairs), truth, frequency, counts)
            linear = linear.calibrate(*calibration.factors(all_rows))
            with device.start():
                margins = linear.margins(rows.take(held_out), labels, device)
        elif truth.any() and not truth.all():
            stacking = LogisticStacking.fit(meta_features(*pairs), truth, counts)
            trees = BoostedStacking.fit(np.stack([*pairs, frequency], axis=1), truth, all_rows, device.n_threads)
            del linear  # frees its memory before the new classifiers need as much
            with device.start():
                linear = LinearClassifiers.fit(rows, Y, weight, candidates, device)
        if trees is None:
            scores = stacking.scores(Z, votes.shares, margins)
        else:
            with device.start():
                scores = trees.scores(labels, Z, votes.shares, margins, device)
        near = votes.near if few_suffice(np.where(valid, scores, -np.inf), is_true, votes, n_near(size)) else NEVER
    return CandidateModel(scale, knn, linear, stacking, size, near, trees)


def build_index(rows: CSR, Y: CSR, weight: np.ndarray, held_out: np.ndarray, size: int, device: CPU) -> KNNIndex:
    """Return the k-NN index; queries read twice as many postings while held-out rows find more of their labels so.

    rows : of norm 1. weight : float32 (n,), sample weights. The device is started.
    """
    knn = KNNIndex.build(rows, Y, weight)
    if not len(held_out):
        return knn
    learned = weight.copy()
    learned[held_out] = 0
    asked, Y_held = rows.take(held_out), Y.take(held_out)

    def recall(index: KNNIndex) -> float:
        labels, _, _ = replace(index, weight=learned).votes(asked, n_scored(size), device)
        return np.count_nonzero(has_label(Y_held, labels)) / max(Y_held.nnz, 1)

    found, max_postings = recall(knn), MIN_POSTINGS
    while max_postings < MAX_POSTINGS:
        max_postings *= 2
        larger = KNNIndex.build(rows, Y, weight, max_postings)
        more = recall(larger)
        if more < found + RECALL_GAIN:
            break
        knn, found = larger, more
    return knn


def few_suffice(scores: np.ndarray, is_true: np.ndarray, votes: HeldOutVotes, few: int) -> bool:
    """Return whether near held-out rows rank as many true labels among their best five with only `few` candidates.

    scores float32, is_true bool (n, m) : of the candidates, those with the most votes first.
    """
    near = votes.nearest > votes.near

    def hits(size: int) -> int:
        best = np.argsort(-scores[near, :size], axis=1)[:, :5]
        return int(np.count_nonzero(np.take_along_axis(is_true[near, :size], best, axis=1)))

    return hits(scores.shape[1]) <= hits(few) * (1 + NEAR_GAIN)


def label_frequencies(Y: CSR, learned: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of rows with each label, float32 (L,): for training the stacking, and for prediction.

    learned, weight : sample weights without and with the held-out rows. Stacking is trained with frequencies that leave
    out the held-out rows, scaled up, because counting a row's own label would leak the answer.
    """
    before, after = (
        np.bincount(Y.row_entries(np.flatnonzero(each)), minlength=Y.n_cols).astype(np.float32)
        for each in (learned, weight)
    )
    before *= np.float32(np.count_nonzero(weight) / np.count_nonzero(learned))
    return before, after


class HeldOutVotes(NamedTuple):
    """Candidate labels of the held-out rows.

    labels int32, shares of the votes float32 (n, m); nearest float32 (n,), cosine of the nearest training row.
    """

    labels: np.ndarray
    shares: np.ndarray
    nearest: np.ndarray

    @property
    def near(self) -> float:
        """Return the cosine above which a row counts as near a training row."""
        return float(np.quantile(self.nearest, FAR_SHARE))

    def counts(self, valid: np.ndarray) -> np.ndarray:
        """Return the sample weight of each pair that is `valid`, bool (n, m): `distance_weights` of its row."""
        return np.broadcast_to(distance_weights(self.nearest)[:, None], valid.shape)[valid]


def training_candidates(
    knn: KNNIndex, rows: CSR, held_out: np.ndarray, size: int, device: CPU
) -> tuple[np.ndarray, HeldOutVotes]:
    """Return the candidate labels of every training row, int32 (n, size), and those that are scored of held-out rows.

    No row votes for itself. rows : of norm 1, in the order of the index. The device is started.
    """
    candidates, shares = np.empty((rows.n_rows, size), np.int32), np.empty((len(held_out), size), np.float32)
    nearest = np.empty(len(held_out), np.float32)
    for first in range(0, rows.n_rows, BLOCK):
        last = min(first + BLOCK, rows.n_rows)
        candidates[first:last], *found = knn.votes(rows.span(first, last), size, device, own=first)
        held = slice(*np.searchsorted(held_out, (first, last)))
        shares[held], nearest[held] = (each[held_out[held] - first] for each in found)
    most = np.argsort(-shares, axis=1)[:, : n_scored(size)]
    labels, shares = (np.take_along_axis(each, most, axis=1) for each in (candidates[held_out], shares))
    return candidates, HeldOutVotes(labels, shares, nearest)


def distance_weights(nearest: np.ndarray) -> np.ndarray:
    """Return the sample weight of held-out rows in stacking, float32 (n,), 1 on average: cubed distance (1 - cosine).

    For a copy of a training row every base model is right, which says nothing about new rows
    (docs/decisions/candidates.md).
    """
    counts = np.maximum(1 - nearest, MIN_DISTANCE) ** 3
    return counts / counts.mean()


def has_label(Y: CSR, labels: np.ndarray) -> np.ndarray:
    """Return which of the labels (n, M) are true for their row, bool."""
    keys = np.repeat(np.arange(Y.n_rows), np.diff(Y.indptr)) * np.int64(Y.n_cols) + Y.indices
    return np.isin(np.arange(Y.n_rows)[:, None] * np.int64(Y.n_cols) + labels, keys) & (labels >= 0)
