"""Mean scores of several models of the same labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .blocks import row_blocks
from .scorer import FILLED_K, best_of_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...data.csr import CSR
    from .scorer import Scorer

WIDTH = 2  # labels that each model names for one that is asked for, and `Scorer.min_k` of them at least
ENTRY_BYTES = 128  # of a label that a model names, while means are taken


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

        To a model whose best these do not include, a label has the score of the last of them, which is never too low.
        Of `columns`, where given, all are scored; -1 and -inf fill up.
        """
        max_k, min_k = min(scorer.max_k for scorer in self.scorers), max(scorer.min_k for scorer in self.scorers)
        if columns is not None or k > max(max_k, FILLED_K // WIDTH):
            return best_of_all(self, X, k, columns)
        wide = min(max(WIDTH * k, min_k), max_k if k <= max_k else self.scorers[0].network.n_labels)
        found = [scorer.top_k(X, wide) for scorer in self.scorers]
        labels, scores = np.empty((X.n_rows, k), np.int32), np.empty((X.n_rows, k), np.float32)
        for rows in row_blocks(X.n_rows, ENTRY_BYTES // 4 * sum(named.shape[1] for named, _ in found)):
            best, means = best_of_means([(named[rows], said[rows]) for named, said in found])
            labels[rows], scores[rows] = best[:, :k], means[:, :k]
        return labels, scores

    def logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield row numbers and their mean scores (rows, L), or (rows, m) of m columns, a block at a time."""
        for blocks in zip(*(scorer.logits(X, columns) for scorer in self.scorers), strict=True):
            with np.errstate(invalid="ignore", over="ignore"):  # `check_finite` says more
                means = np.mean([Z for _, Z in blocks], axis=0, dtype=np.float32)
            yield blocks[0][0], means  # outside, or whoever asks would be without warnings, too


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
    means = (means + np.sum(least, axis=0)) / len(found)
    means[labels < 0] = -np.inf
    order = np.argsort(-means, axis=1, kind="stable")
    labels, means = np.take_along_axis(labels, order, axis=1), np.take_along_axis(means, order, axis=1)
    return np.where(np.isneginf(means), -1, labels).astype(np.int32), means.astype(np.float32)
