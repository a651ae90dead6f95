"""Rankings in which a true label does not count the same as any other: by its chance times what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .blocks import row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...data.csr import CSR
    from .scorer import Ranker


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
        for rows in row_blocks(X.n_rows, 8 * wide):
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
