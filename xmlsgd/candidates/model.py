"""The shortlist of a model: which labels come into question for a row, and what to think of each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..data.csr import CSR, HELD_OUT, Dataset
from ..devices.cpu import CPU
from .boosted_stacking import NO_TREES, Boosted
from .compact import CompactLinear
from .knn import BUDGET, NEIGHBORS, Neighbors
from .linear import Linear
from .stacking import LEAST_VOTE, Blend, evidence_of
from .weighting import rarity, unit_rows, weight_of

BLOCK = 1 << 16  # rows whose votes are held together
LARGEST_SHARE = 10  # one row in ten is held out at most
SCORED = 64  # labels of a list at least, half of a longer one: the others, learned as negatives, rarely come first
SCORED_NEAR = 32  # of a row that is near to a training row at least, and half of what others get
STRANGE_SHARE = 0.1  # of held-out rows, those whose nearest is farthest, that count as unlike those of training
LEAST_STRANGE = np.float32(1e-3)  # distance of the nearest row that copies are taken to have, so that some row counts


class HeldOut(NamedTuple):
    """How many rows only the blend learns from: a share of all, rather more if they are not `wanted`, and not `most`.

    A tenth of all rows at most; none where that is less than `least`.
    """

    share: float
    wanted: int
    most: int
    least: int

    def of(self, n_rows: int) -> int:
        """Return the number of rows."""
        n = min(max(int(self.share * n_rows), self.wanted), self.most, n_rows // LARGEST_SHARE)
        return n if n >= self.least else 0


# Four numbers are soon learned, and their defaults are for text alone. Trees learn from 1,000 rows more than four
# numbers say, and from 5,000 nearly all that they do from 50,000 (docs/decisions/shortlist.md).
LOGISTIC, BOOSTED = HeldOut(0.02, 400, 2048, 100), HeldOut(0.1, 1000, 10_000, 1000)

# Logits float32 (rows, M) of the network for rows of X and labels (rows, M), 0 where a label is -1.
Logits = Callable[[CSR, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Shortlist:
    """scale : float32 (F,), the weight of each feature. size : labels that a row learned from, M.

    near : cosine of the nearest training row above which only `n_near` labels are scored.
    boosted : what scores listed labels in place of `blend`, or None.
    """

    scale: np.ndarray
    neighbors: Neighbors
    linear: Linear | CompactLinear
    blend: Blend
    size: int
    near: float
    boosted: Boosted | None = None

    def scored(self, X: CSR, logits: Logits, device: CPU) -> tuple[np.ndarray, np.ndarray]:
        """Return (labels, scores), int32 and float32 (n, m), of the labels that `evidence` returns."""
        with device.start():
            labels, votes, margins = self.evidence(X, device)
        Z = logits(X, labels)
        if self.boosted is None:
            return labels, self.blend.scores(Z, votes, margins)
        with device.start():
            return labels, self.boosted.scores(labels, Z, votes, margins, device)

    def evidence(self, X: CSR, device: CPU) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the labels that each row is most likely to have, int32 (n, m), their votes and margins, float32.

        In no order; -1 fills up.
        """
        rows = unit_rows(X, self.scale, device)
        fewer = self.near, n_near(self.size)
        labels, votes, _ = self.neighbors.votes(rows, n_scored(self.size), device, fewer=fewer)
        return labels, votes, self.linear.margins(rows, labels, device)

    def arrays(self) -> tuple[Any, ...]:
        """Return what was learned, all but one of it arrays, in the order of `best_listed`."""
        trees = NO_TREES if self.boosted is None else self.boosted
        blend = np.float32(self.blend), *trees.arrays
        return self.scale, *self.neighbors.arrays, *self.linear.tables, self.linear.bias, *blend

    def numbers(self) -> tuple[Any, ...]:
        """Return the numbers that follow there."""
        return LEAST_VOTE, n_scored(self.size), NEIGHBORS, BUDGET, np.float32(self.near), n_near(self.size)

    def unlisted(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores of labels that are not on the list of their row: no votes, and the margin of none."""
        return self.blend.scores(logits, LEAST_VOTE, np.float32(-1))

    def grown(self, X: CSR, Y: CSR, weight: np.ndarray | None, device: CPU) -> Shortlist:
        """Return a shortlist that also remembers these rows, of as many features and labels or more.

        Linear path and blend stay what they are: a label that they do not know has the margin of none, -1, and no rows.
        """
        weight = np.ones(X.n_rows, np.float32) if weight is None else weight
        assert isinstance(self.linear, Linear)  # a compact model cannot learn on
        fresh = weight_of(np.ones(X.n_cols - len(self.scale)), self.neighbors.Y.n_rows)
        scale = np.concatenate([self.scale, fresh])
        weights, more = self.linear.weights, Y.n_cols - self.linear.weights.n_rows
        indptr = np.concatenate([weights.indptr, np.full(more, weights.nnz)])
        linear = Linear(
            CSR(indptr, weights.indices, weights.data, X.n_cols),
            np.concatenate([self.linear.bias, np.full(more, -1, np.float32)]),
        )
        with device.start():
            rows = unit_rows(X, scale, device)
        neighbors = self.neighbors.with_rows(rows, Y, weight)
        boosted = None if self.boosted is None else self.boosted.grown(Y.n_cols)
        return Shortlist(scale, neighbors, linear, self.blend, self.size, self.near, boosted)


def n_scored(size: int) -> int:
    """Return how many labels are scored of lists of `size`: those with the most votes."""
    return min(size, max(SCORED, size // 2))


def n_near(size: int) -> int:
    """Return how many are scored of a row that is near to a training row."""
    return min(size, max(SCORED_NEAR, n_scored(size) // 2))


def held_out_rows(n_rows: int, seed: int, held_out: HeldOut = LOGISTIC) -> np.ndarray:
    """Return the rows that neither network nor linear path may learn, so that the blend can; ascending, maybe none."""
    n = held_out.of(n_rows)
    return np.sort(np.random.default_rng((seed, HELD_OUT)).choice(n_rows, n, replace=False))


def fit_shortlist(
    dataset: Dataset,
    weight: np.ndarray | None,
    held_out: np.ndarray,
    size: int,
    logits: Logits,
    device: CPU,
    boosted: bool = False,
) -> Shortlist:
    """Learn a shortlist of `size` labels a row from rows with the weights float32 (n,), None for ones.

    Of rows held out for trees (`boosted`), which are many, the linear path learns once they have served.
    """
    X, Y = dataset.X, dataset.Y
    weight = np.ones(X.n_rows, np.float32) if weight is None else weight
    scale = rarity(X)
    learned = weight.copy()
    learned[held_out] = 0
    with device.start():
        rows = unit_rows(X, scale, device)
        neighbors = Neighbors.build(rows, Y, weight)
        lists, asked = own_lists(neighbors, rows, held_out, size, device)
        linear = Linear.fit(rows, Y, learned, lists, device)
    blend, trees, near = Blend(), None, 1.0
    if len(held_out):
        near, listed = asked.near, asked.labels
        X_held, Y_held = X.take(held_out), Y.take(held_out)
        with device.start():
            margins = linear.margins(rows.take(held_out), listed, device)
        known = listed >= 0
        pairs = logits(X_held, listed)[known], asked.votes[known], margins[known]
        counts = asked.counts(known)
        truth = has(Y_held, listed)[known]
        before, all_rows = label_frequencies(Y, learned, weight)
        frequency = before[listed[known]]
        if not boosted:
            blend, calibration = Blend.fit_by_frequency(evidence_of(*pairs), truth, frequency, counts)
            linear = linear.calibrate(*calibration.factors(all_rows))
        elif truth.any() and not truth.all():
            blend = Blend.fit(evidence_of(*pairs), truth, counts)
            trees = Boosted.fit(np.stack([*pairs, frequency], axis=1), truth, all_rows, device.n_threads)
            del linear  # as large as the one that takes its place
            with device.start():
                linear = Linear.fit(rows, Y, weight, lists, device)
    return Shortlist(scale, neighbors, linear, blend, size, near, trees)


def label_frequencies(Y: CSR, learned: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many rows have each label, float32 (L,): as the blend learns it, and as prediction will know it.

    learned, weight : of each row, without and with those held out for the blend. It learns from rows that are counted
    elsewhere: with the held-out rows, which the pair's own is among, the frequency would tell the answer.
    """
    before, after = (_frequency(Y, each) for each in (learned, weight))
    before *= np.float32(np.count_nonzero(weight) / np.count_nonzero(learned))
    return before, after


def _frequency(Y: CSR, weight: np.ndarray) -> np.ndarray:
    """Return how many rows of a weight above 0 have each label, float32 (L,)."""
    return np.bincount(Y.row_entries(np.flatnonzero(weight)), minlength=Y.n_cols).astype(np.float32)


class Asked(NamedTuple):
    """What neighbors say of rows: labels int32, votes float32 (n, m); the cosine of the nearest, float32 (n,)."""

    labels: np.ndarray
    votes: np.ndarray
    nearest: np.ndarray

    @property
    def near(self) -> float:
        """Return the cosine above which a row counts as like those of training."""
        return float(np.quantile(self.nearest, STRANGE_SHARE))

    def counts(self, known: np.ndarray) -> np.ndarray:
        """Return how much each pair that is `known`, bool (n, m), counts for the blend, float32: as its row does."""
        return np.broadcast_to(strangeness(self.nearest)[:, None], known.shape)[known]


def own_lists(
    neighbors: Neighbors, rows: CSR, held_out: np.ndarray, size: int, device: CPU
) -> tuple[np.ndarray, Asked]:
    """Return the list of every training row, itself not asked, int32 (n, size), and what scores of those held out ask.

    rows, held_out : of norm 1, in the order of the memory; the device is started.
    """
    lists, votes = np.empty((rows.n_rows, size), np.int32), np.empty((len(held_out), size), np.float32)
    nearest = np.empty(len(held_out), np.float32)
    for first in range(0, rows.n_rows, BLOCK):
        last = min(first + BLOCK, rows.n_rows)
        lists[first:last], shares, cosines = neighbors.votes(rows.span(first, last), size, device, own=first)
        held = slice(*np.searchsorted(held_out, (first, last)))
        votes[held], nearest[held] = (each[held_out[held] - first] for each in (shares, cosines))
    most = np.argsort(-votes, axis=1)[:, : n_scored(size)]
    listed, votes = (np.take_along_axis(each, most, axis=1) for each in (lists[held_out], votes))
    return lists, Asked(listed, votes, nearest)


def strangeness(nearest: np.ndarray) -> np.ndarray:
    """Return how much a held-out row counts for the blend, float32 (n,), 1 on average: (1 - cosine of the nearest)^3.

    A row whose copy has been learned believes all paths and tells nothing of new rows (docs/decisions/shortlist.md).
    """
    counts = np.maximum(1 - nearest, LEAST_STRANGE) ** 3
    return counts / counts.mean()


def has(Y: CSR, labels: np.ndarray) -> np.ndarray:
    """Return which of the labels (n, M) their row has, bool."""
    keys = np.repeat(np.arange(Y.n_rows), np.diff(Y.indptr)) * np.int64(Y.n_cols) + Y.indices
    return np.isin(np.arange(Y.n_rows)[:, None] * np.int64(Y.n_cols) + labels, keys) & (labels >= 0)
