"""Rankings made of those of scorers: means of several models, weighted labels, excluded labels, likely labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...data.csr import CSR
from .scorer import FILLED_K, Ranker, Scorer, row_ranges

Ranked = tuple[NDArray[np.int32], NDArray[np.float64]]  # labels and probabilities (rows, k)

WIDTH = 2  # labels that each model names for one that is asked for, and `Scorer.min_k` of them at least
ENTRY_BYTES = 128  # of a label that a model names, while means are taken
FIRST_K = 16  # labels that are looked at; more, where all of them are chosen
GROWTH = 4


class MeanScorer:
    """The mean scores of several models, each of a `Scorer`."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self.scorers = scorers

    @property
    def n_reweighted(self) -> int:
        """Return how many labels of a row it ranks in hardly more time than the best."""
        return max(min(scorer.n_reweighted for scorer in self.scorers) // WIDTH, 1)

    def load_kernels(self, X: CSR, k: int) -> None:
        """Load what `top_k` of these rows runs."""
        for scorer in self.scorers:
            scorer.load_kernels(X, min(k, scorer.max_k))

    def top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k labels and their mean scores, of those among the best 2 k of a model, or its `min_k`.

        To a model whose best these do not include, a label has the score of the last of them. That is never too low
        without candidates; with them, a label that is not a candidate of that model may have a higher score. Of
        `columns`, where given, all are scored; -1 and -inf fill up.
        """
        max_k, min_k = min(scorer.max_k for scorer in self.scorers), max(scorer.min_k for scorer in self.scorers)
        if columns is not None or k > max(max_k, FILLED_K // WIDTH):
            return best_of_all(self, X, k, columns)
        wide = min(max(WIDTH * k, min_k), max_k if k <= max_k else self.scorers[0].network.n_labels)
        found = [scorer.top_k(X, wide) for scorer in self.scorers]
        labels, scores = np.empty((X.n_rows, k), np.int32), np.empty((X.n_rows, k), np.float32)
        for rows in row_ranges(X.n_rows, ENTRY_BYTES // 4 * sum(named.shape[1] for named, _ in found)):
            best, means = best_of_means([(named[rows], said[rows]) for named, said in found])
            labels[rows], scores[rows] = best[:, :k], means[:, :k]
        return labels, scores

    def logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield row numbers and their mean scores (rows, L), or (rows, m) of m columns, a block at a time."""
        for blocks in zip(*(scorer.logits(X, columns) for scorer in self.scorers), strict=True):
            with np.errstate(invalid="ignore", over="ignore"):  # `check_finite` says more
                means = np.mean([Z for _, Z in blocks], axis=0, dtype=np.float32)
            yield blocks[0][0], means  # outside, or whoever asks would be without warnings, too


def best_of_all(
    scorer: Scorer | MeanScorer, X: CSR, k: int, columns: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best k labels and their scores, all labels scored, or all of `columns`; -1 and -inf fill up.

    int32 and float32 (n, k), best first; of equals the smaller goes first.
    """
    columns = columns if columns is None else np.unique(columns)
    labels, scores = np.full((X.n_rows, k), -1, np.int32), np.full((X.n_rows, k), -np.inf, np.float32)
    for rows, Z in scorer.logits(X, columns):
        order = np.argsort(-Z, axis=1, kind="stable")[:, :k]
        span = slice(0, order.shape[1])
        labels[rows, span] = order if columns is None else columns[order]
        scores[rows, span] = np.take_along_axis(Z, order, axis=1)
    return labels, scores


def best_of_means(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return all labels of each row and their mean scores, int32 and float32 (n, M m), best first, each label once.

    found : of each of M models labels, int32 (n, m), -1 where it has no more, and their scores, float32 (n, m), of
        which the least in a row stands for labels that the model did not name.

    -1 and -inf fill up; of equals the smaller label goes first.
    """
    least, above = [], []
    for named, scores in found:
        low = np.where(named >= 0, scores, np.inf).min(axis=1, keepdims=True)
        least.append(np.where(np.isposinf(low), 0.0, low))
        above.append(np.where(named >= 0, scores - least[-1], 0.0))
    labels, gains = np.concatenate([named for named, _ in found], axis=1), np.concatenate(above, axis=1)
    order = np.argsort(labels, axis=1, kind="stable")
    labels, gains = np.take_along_axis(labels, order, axis=1), np.take_along_axis(gains, order, axis=1)
    first = np.ones(labels.shape, bool)
    first[:, 1:] = labels[:, 1:] != labels[:, :-1]
    means = np.full(labels.shape, -np.inf)
    means[first] = np.bincount(np.cumsum(first) - 1, weights=gains.ravel())
    means = ((means + np.sum(least, axis=0)) / len(found)).astype(np.float32)  # before ranking: equals go by label
    means[labels < 0] = -np.inf
    order = np.argsort(-means, axis=1, kind="stable")
    labels, means = np.take_along_axis(labels, order, axis=1), np.take_along_axis(means, order, axis=1)
    return np.where(np.isneginf(means), -1, labels).astype(np.int32), means


@dataclass(frozen=True, eq=False)
class WeightedRanker:
    """Ranks the likeliest labels of `ranker` by log(weight x probability), which are its scores.

    weight : float64 (L,), above 0, what a true label counts. With the inverse propensity this order has the largest
    expected PSP@k (Jain, Prabhu, Varma, KDD 2016). log_odds : turns scores into calibrated log odds; None for softmax,
    whose scores are the logs of the probabilities up to a constant of the row.
    """

    ranker: Ranker
    weight: np.ndarray
    log_odds: Callable[[np.ndarray], np.ndarray] | None

    def load_kernels(self, X: CSR, k: int) -> None:
        """Load what `top_k` of these rows runs, by running it on a few of them."""
        self.ranker.load_kernels(X, self._wide(k))

    def top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k of the labels that have the highest chance, `n_reweighted` of the ranker, and their scores.

        int32 and float32 (n, k); of equals the smaller goes first; -1 and -inf fill up.
        """
        labels, scores = np.empty((X.n_rows, k), np.int32), np.empty((X.n_rows, k), np.float32)
        log_weight, wide = np.log(self.weight), self._wide(k)
        for rows in row_ranges(X.n_rows, 8 * wide):
            span = slice(rows[0], rows[-1] + 1)
            likeliest, Z = self.ranker.top_k(X.span(span.start, span.stop), wide, columns)
            gain = (Z if self.log_odds is None else -np.logaddexp(0, -self.log_odds(Z))) + log_weight[likeliest]
            gain[likeliest < 0] = -np.inf
            order = np.lexsort((likeliest, -gain))[:, :k]
            labels[span] = np.take_along_axis(likeliest, order, axis=1)
            scores[span] = np.take_along_axis(gain, order, axis=1)
        return labels, scores

    def _wide(self, k: int) -> int:
        """Return how many labels are weighed."""
        return min(max(k, self.ranker.n_reweighted), len(self.weight))


def labels_above(
    ask: Callable[[NDArray[np.intp], int], Ranked],
    n_rows: int,
    thresholds: NDArray[np.float64],
    first: Ranked | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.float64]]:
    """Return pairs of row and label of at least the label's threshold (L,), ordered, and their probabilities.

    ask : given row numbers and k, returns the best k labels, -1 for none, and their probabilities (rows, k). It is
    asked for more until none can be chosen, so that few of many labels cost little. first : what it said of all rows.
    """
    n_labels, least = len(thresholds), thresholds.min()
    chosen: list[tuple[np.ndarray, ...]] = [(np.empty(0, np.intp), np.empty(0, np.int32), np.empty(0))]
    rows, k = np.arange(n_rows), min(FIRST_K, n_labels) if first is None else first[0].shape[1]
    while len(rows):
        asked_again = []
        for block in row_ranges(len(rows), 8 * k):
            part = rows[block]
            labels, probabilities = ask(part, k) if first is None else (first[0][part], first[1][part])
            more = (labels[:, -1] >= 0) & (probabilities[:, -1] >= least) & (k < n_labels)
            row, rank = np.nonzero((labels >= 0) & (probabilities >= thresholds[labels]) & ~more[:, None])
            chosen.append((part[row], labels[row, rank], probabilities[row, rank]))
            asked_again.append(part[more])
        first, rows, k = None, np.concatenate(asked_again), min(GROWTH * k, n_labels)
    found, labels, probabilities = (np.concatenate(each) for each in zip(*chosen, strict=True))
    order = np.lexsort((labels, found))
    return found[order], labels[order], probabilities[order]


@dataclass(frozen=True, eq=False)
class ExcludingRanker:
    """Ranks the labels of `ranker` without those that are `excluded`, bool (L,)."""

    ranker: Ranker
    excluded: NDArray[np.bool_]

    @property
    def n_reweighted(self) -> int:
        """Return how many labels of a row it ranks in hardly more time than the best."""
        return self.ranker.n_reweighted

    def load_kernels(self, X: CSR, k: int) -> None:
        """Load what `top_k` of these rows runs, by running it on a few of them."""
        self.ranker.load_kernels(X, k)

    def top_k(self, X: CSR, k: int, columns: NDArray[np.intp] | None = None) -> tuple[NDArray, NDArray]:
        """Return the best k labels that are not excluded, int32 (n, k), and their scores, float32; -1 and -inf fill up.

        Rows among whose best labels many are excluded are asked for more.
        """
        if columns is not None:
            columns = columns[~self.excluded[columns]]
        best, found = np.full((X.n_rows, k), -1, np.int32), np.full((X.n_rows, k), -np.inf, np.float32)
        rows, n_excluded = np.arange(X.n_rows), int(self.excluded.sum())
        more = 0 if columns is not None else min(n_excluded, FIRST_K)
        while len(rows) and (columns is None or len(columns)):
            wide = min(k + more, len(self.excluded))
            labels, scores = self.ranker.top_k(X if len(rows) == X.n_rows else X.take(rows), wide, columns)
            kept = (labels >= 0) & ~self.excluded[labels]
            order = np.argsort(~kept, axis=1, kind="stable")[:, :k]
            kept, labels, scores = (np.take_along_axis(each, order, axis=1) for each in (kept, labels, scores))
            span = slice(0, kept.shape[1])
            best[rows, span], found[rows, span] = np.where(kept, labels, -1), np.where(kept, scores, -np.inf)
            short = ~kept.all(axis=1) & (columns is None) & (more < n_excluded) & (wide < len(self.excluded))
            rows, more = rows[short], min(GROWTH * more, n_excluded)
        return best, found
