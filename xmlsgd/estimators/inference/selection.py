"""Labels chosen by their probability, however many a row has, and rankings without excluded labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .blocks import row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ...data.csr import CSR
    from .scorer import Ranker

    Ranked = tuple[NDArray[np.int32], NDArray[np.float64]]  # labels and probabilities (rows, k)

FIRST_K = 16  # labels that are looked at; more, where all of them are chosen
GROWTH = 4


def labels_above(
    ask: Callable[[NDArray[np.intp], int], Ranked],
    n_rows: int,
    thresholds: NDArray[np.float64],
    first: Ranked | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.float64]]:
    """Return pairs of a row and a label, ordered, whose probability is at least the label's threshold (L,), and these.

    ask : given row numbers and k, returns the best k labels, -1 for none, and their probabilities (rows, k). It is
    asked for more until none can be chosen, so that few of many labels cost little. first : what it said of all rows.
    """
    n_labels, least = len(thresholds), thresholds.min()
    chosen: list[tuple[np.ndarray, ...]] = [(np.empty(0, np.intp), np.empty(0, np.int32), np.empty(0))]
    rows, k = np.arange(n_rows), min(FIRST_K, n_labels) if first is None else first[0].shape[1]
    while len(rows):
        asked_again = []
        for block in row_blocks(len(rows), 8 * k):
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

    def logits(self, X: CSR, columns: NDArray[np.intp] | None = None) -> Iterator[tuple[NDArray, NDArray]]:
        """Yield row numbers and the scores of labels, also of excluded ones."""
        yield from self.ranker.logits(X, columns)
