"""Rankings derived from scorers: means of several models, weighted labels, excluded labels, labels above thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...data.csr import CSR
from .scorer import FILLED_K, Ranker, Scorer, row_ranges

Ranked = tuple[NDArray[np.int32], NDArray[np.float64]]  # labels and probabilities (rows, k)

WIDTH = 2  # each model lists this many times k labels, and at least `Scorer.min_k`
ENTRY_BYTES = 128  # memory per listed label while means are computed
FIRST_K = 16  # labels per row that are ranked first; if all of them are chosen, GROWTH times as many
GROWTH = 4


class MeanScorer:
    """Ranks labels by the mean of the scores of several models."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self.scorers = scorers

    @property
    def n_reweighted(self) -> int:
        """Return how many labels per row can be ranked, in order to reweight them, in hardly more time than one."""
        return max(min(scorer.n_reweighted for scorer in self.scorers) // WIDTH, 1)

    def top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k labels, int32 (n, k), and their mean scores, float32 (n, k); padded with -1 and -inf.

        Each model lists its best 2 k labels, at least `min_k`. If a label is not in the list of a model, the score of
        the last label in it is used. This is never too low without candidates; with candidates, a label that is not a
        candidate may have a higher score. If `columns` is given, all of these are scored.
        """
        max_k, min_k = min(scorer.max_k for scorer in self.scorers), max(scorer.min_k for scorer in self.scorers)
        if columns is not None or k > max(max_k, FILLED_K // WIDTH):
            return best_of_all(self, X, k, columns)
        wide = min(max(WIDTH * k, min_k), max_k if k <= max_k else self.scorers[0].network.n_labels)
        found = [scorer.top_k(X, wide) for scorer in self.scorers]
        labels, scores = np.empty((X.n_rows, k), np.int32), np.empty((X.n_rows, k), np.float32)
        for rows in row_ranges(X.n_rows, ENTRY_BYTES // 4 * sum(listed.shape[1] for listed, _ in found)):
            best, means = best_of_means([(listed[rows], theirs[rows]) for listed, theirs in found])
            labels[rows], scores[rows] = best[:, :k], means[:, :k]
        return labels, scores

    def logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of row indices and their mean scores (rows, L), or (rows, m) for m columns."""
        for blocks in zip(*(scorer.logits(X, columns) for scorer in self.scorers), strict=True):
            with np.errstate(invalid="ignore", over="ignore"):  # `check_finite` raises an error instead
                means = np.mean([Z for _, Z in blocks], axis=0, dtype=np.float32)
            yield blocks[0][0], means  # outside of the context, which would also cover the caller


def best_of_all(
    scorer: Scorer | MeanScorer, X: CSR, k: int, columns: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Score all labels, or all of `columns`; return the best k, int32 (n, k), and their scores, float32 (n, k).

    Of equal scores, the smaller label comes first. Padded with -1 and -inf.
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
    """Return all listed labels of each row, int32 (n, M m), best first, and their mean scores, float32 (n, M m).

    found : for each of M models, labels, int32 (n, m), padded with -1, and their scores, float32 (n, m). The least
        score of a row is used for labels that the model does not list.

    Each label occurs once. Of equal scores, the smaller label comes first. Padded with -1 and -inf.
    """
    least, above = [], []
    for listed, scores in found:
        low = np.where(listed >= 0, scores, np.inf).min(axis=1, keepdims=True)
        least.append(np.where(np.isposinf(low), 0.0, low))
        above.append(np.where(listed >= 0, scores - least[-1], 0.0))
    labels, gains = np.concatenate([listed for listed, _ in found], axis=1), np.concatenate(above, axis=1)
    order = np.argsort(labels, axis=1, kind="stable")
    labels, gains = np.take_along_axis(labels, order, axis=1), np.take_along_axis(gains, order, axis=1)
    first = np.ones(labels.shape, bool)
    first[:, 1:] = labels[:, 1:] != labels[:, :-1]
    means = np.full(labels.shape, -np.inf)
    means[first] = np.bincount(np.cumsum(first) - 1, weights=gains.ravel())
    means = ((means + np.sum(least, axis=0)) / len(found)).astype(np.float32)  # rounded first, so that ties are ties
    means[labels < 0] = -np.inf
    order = np.argsort(-means, axis=1, kind="stable")
    labels, means = np.take_along_axis(labels, order, axis=1), np.take_along_axis(means, order, axis=1)
    return np.where(np.isneginf(means), -1, labels).astype(np.int32), means


@dataclass(frozen=True, eq=False)
class WeightedRanker:
    """Ranks the most probable labels of `ranker` by log(weight x probability).

    weight : value of a true label, float64 (L,), above 0. Inverse propensities maximize the expected PSP@k (Jain,
    Prabhu, Varma, KDD 2016). log_odds : turns scores into calibrated log odds; None for softmax, whose scores are the
    logarithms of probabilities up to a constant per row. n_reweighted : number of most probable labels per row that are
    ranked again, at least k.
    """

    ranker: Ranker
    weight: np.ndarray
    log_odds: Callable[[np.ndarray], np.ndarray] | None
    n_reweighted: int

    def top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k of the `n_reweighted` most probable labels, int32 (n, k), and their scores, float32 (n, k).

        Of equal scores, the smaller label comes first. Padded with -1 and -inf.
        """
        labels, scores = np.empty((X.n_rows, k), np.int32), np.empty((X.n_rows, k), np.float32)
        log_weight, wide = np.log(self.weight), min(max(k, self.n_reweighted), len(self.weight))
        for rows in row_ranges(X.n_rows, 8 * wide):
            span = slice(rows[0], rows[-1] + 1)
            likeliest, Z = self.ranker.top_k(X.span(span.start, span.stop), wide, columns)
            gain = (Z if self.log_odds is None else -np.logaddexp(0, -self.log_odds(Z))) + log_weight[likeliest]
            gain[likeliest < 0] = -np.inf
            order = np.lexsort((likeliest, -gain))[:, :k]
            labels[span] = np.take_along_axis(likeliest, order, axis=1)
            scores[span] = np.take_along_axis(gain, order, axis=1)
        return labels, scores


def labels_above(
    ask: Callable[[NDArray[np.intp], int], Ranked],
    n_rows: int,
    thresholds: NDArray[np.float64],
    first: Ranked | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.float64]]:
    """Return rows, labels and probabilities of all pairs whose probability reaches the label's threshold, in order.

    ask : takes row indices and k; returns the best k labels, padded with -1, and their probabilities (rows, k). It is
    called with larger k until no further label can be chosen, so that few labels of many cost little. thresholds :
    of each label, (L,). first : the answer of `ask` for all rows, if it is known.
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
    """Ranks the labels of `ranker` but for those that are `excluded`, bool (L,)."""

    ranker: Ranker
    excluded: NDArray[np.bool_]

    def top_k(self, X: CSR, k: int, columns: NDArray[np.intp] | None = None) -> tuple[NDArray, NDArray]:
        """Return the best k labels that are not excluded, int32 (n, k), and their scores, float32 (n, k).

        More labels are ranked for rows that have many excluded ones among their best. Padded with -1 and -inf.
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
