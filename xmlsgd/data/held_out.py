"""Choose rows to hold out, and pairs of them to learn from: for stacking, calibration and thresholds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .csr import CSR, Dataset, row_spans
from .random_streams import HELD_OUT

MOST_ONE_IN = 10  # hold out at most one row in ten
FALSE_PAIRS = 1 << 15  # that `draw_pairs` draws at most (docs/decisions/stacking.md)
COMPARED_ENTRIES = 1 << 22  # whose copies as float64 are in memory at a time


class HeldOutSize(NamedTuple):
    """The number of rows to hold out: `share` of all rows, but at least `floor`, at most `most` and a tenth of all.

    If this number is below `cutoff`, none are held out.
    """

    share: float
    floor: int
    most: int
    cutoff: int

    def of(self, n_rows: int) -> int:
        """Return the number of rows to hold out of `n_rows`."""
        n = min(max(int(self.share * n_rows), self.floor), self.most, n_rows // MOST_ONE_IN)
        return n if n >= self.cutoff else 0


# With candidates, for stacking. The network does not learn these rows (docs/decisions/stacking.md).
HELD_OUT_STACKING = HeldOutSize(share=0.1, floor=100, most=2000, cutoff=100)
HELD_OUT_SMALL = HeldOutSize(share=0.1, floor=10, most=1000, cutoff=10)  # each fold of small data
# Without candidates, for the three weights of calibration and the thresholds.
HELD_OUT_NETWORK = HeldOutSize(share=0.02, floor=200, most=2048, cutoff=100)
HELD_OUT_NONE = HeldOutSize(share=0.0, floor=0, most=0, cutoff=0)


def held_out_folds(
    n_rows: int, seed: int, size: HeldOutSize, groups: NDArray[np.int64] | None, n_folds: int
) -> list[NDArray[np.intp]]:
    """Return disjoint folds of row indices to hold out, each ascending; with few rows, fewer than `n_folds` or none.

    size : of each fold. groups : int64 (n_rows,), the group of each row; a fold has all rows of a group or none of
    them. None if rows are independent.
    """
    random, left = np.random.default_rng((seed, HELD_OUT)), np.arange(n_rows)
    folds: list[NDArray[np.intp]] = []
    for _ in range(n_folds):
        drawn = draw_rows(len(left), size.of(n_rows), None if groups is None else groups[left], random)
        if len(drawn) < max(size.cutoff, 1):
            break
        folds.append(left[drawn])
        left = np.delete(left, drawn)
    return folds


def draw_rows(n_rows: int, n: int, groups: NDArray[np.int64] | None, random: np.random.Generator) -> NDArray[np.intp]:
    """Return `n` row indices at random, ascending; with groups, at most `n`: all rows of whole groups.

    Each row gets a random key, and rows with the lowest keys are drawn. If rows are added at the end, mostly the same
    earlier rows are drawn. So a model that continues training is hardly evaluated on rows that it has learned.
    """
    keys = random.random(n_rows)
    if groups is None:
        return np.sort(np.argsort(keys)[:n])
    sizes = np.bincount(groups)
    taken, n_left = np.zeros(len(sizes), np.bool_), n
    present, first = np.unique(groups, return_index=True)
    for group in present[np.argsort(keys[first])]:
        if sizes[group] <= n_left:
            taken[group] = True
            n_left -= sizes[group]
    return np.flatnonzero(taken[groups])


def groups_of_similar_rows(X: CSR) -> NDArray[np.int64]:
    """Return the group of each row, int64 (n,), numbered from 0: rows with the same rarest feature form a group.

    The rarest feature of a row is the one that the fewest rows have; features of a single row, and of more than one row
    in `MOST_ONE_IN`, are ignored. A row without such a feature is a group by itself.
    """
    if not X.n_rows:
        return np.empty(0, np.int64)
    counts = np.bincount(X.indices, minlength=X.n_cols)
    order = np.argsort(counts, kind="stable")
    shared = (counts[order] > 1) & (counts[order] <= X.n_rows // MOST_ONE_IN)
    rank = np.empty(X.n_cols, np.int64)
    rank[order] = np.where(shared, np.arange(X.n_cols), X.n_cols)
    rarest = np.minimum.reduceat(np.append(rank[X.indices], X.n_cols), X.indptr[:-1])
    alone = (rarest == X.n_cols) | (np.diff(X.indptr) == 0)  # reduceat gives an empty row the next one's
    _, groups = np.unique(np.where(alone, X.n_cols + np.arange(X.n_rows), rarest), return_inverse=True)
    return groups.astype(np.int64)


def are_copies(rows: Dataset) -> NDArray[np.bool_]:
    """Return which rows have the same features, at least one, and the same labels as another row, bool (n,)."""
    _, number, count = np.unique(_row_sums(rows), return_inverse=True, return_counts=True)
    return np.asarray((count[number] > 1) & (np.diff(rows.X.indptr) > 0))


def are_among(rows: Dataset, others: Dataset) -> NDArray[np.bool_]:
    """Return which rows have the same features, at least one, and labels as one of other rows of equal F, bool (n,)."""
    return np.isin(_row_sums(rows), _row_sums(others)) & (np.diff(rows.X.indptr) > 0)


def _row_sums(rows: Dataset) -> NDArray[np.float64]:
    """Return sums of each row with random weights, which are equal where rows are, float64 (n,)."""
    random, sums = np.random.default_rng(0), np.zeros(rows.n_rows)
    for matrix in (rows.X, rows.Y):
        weight = random.random(matrix.n_cols)
        for first, last in row_spans([matrix], COMPARED_ENTRIES):
            sums[first:last] += matrix.span(first, last).to_scipy() @ weight
    return sums


def draw_pairs(truth: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Draw all true pairs of a row and a label, and about `FALSE_PAIRS` false ones, the same in each run.

    Return their indices, intp (m,), and weights, float64 (m,): 1 for true pairs, the inverse of the share drawn for
    false ones (King and Zeng 2001). truth : whether each pair is true, bool (n,).
    """
    share = min(FALSE_PAIRS / max(len(truth) - np.count_nonzero(truth), 1), 1.0)
    drawn = np.flatnonzero(truth | (np.random.default_rng(0).random(len(truth)) < share))
    return drawn, np.where(truth[drawn], 1, 1 / share)
