"""Held-out rows: how many of the rows, and which, for stacking, calibration and thresholds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .csr import CSR, HELD_OUT

LARGEST_SHARE = 10  # at most one row in ten is held out


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


# Stacking learns from these rows, and the network misses them (docs/decisions/candidates.md).
HELD_OUT_STACKING = HeldOutSize(0.1, 100, 2000, 100)
HELD_OUT_SMALL = HeldOutSize(0.1, 10, 1000, 10)  # of each fold of small data
# A network alone has three weights of its calibration and the thresholds to learn.
HELD_OUT_NETWORK, HELD_OUT_NONE = HeldOutSize(0.02, 200, 2048, 100), HeldOutSize(0.0, 0, 0, 0)


def held_out_folds(
    n_rows: int,
    seed: int,
    size: HeldOutSize = HELD_OUT_STACKING,
    groups: NDArray[np.int64] | None = None,
    n_folds: int = 1,
) -> list[NDArray[np.intp]]:
    """Return disjoint folds of rows to hold out, each ascending; fewer than `n_folds`, possibly none, of few rows.

    size : of each fold. groups : int64 (n_rows,), all rows of one of which are in one fold, or in none; None where rows
    are independent.
    """
    random, left = np.random.default_rng((seed, HELD_OUT)), np.arange(n_rows)
    folds: list[NDArray[np.intp]] = []
    for _ in range(n_folds):
        drawn = draw_rows(len(left), size.of(n_rows), None if groups is None else groups[left], random)
        if len(drawn) < max(size.least, 1):
            break
        folds.append(left[drawn])
        left = np.delete(left, drawn)
    return folds


def draw_rows(n_rows: int, n: int, groups: NDArray[np.int64] | None, random: np.random.Generator) -> NDArray[np.intp]:
    """Return `n` rows at random, or with groups the rows of as many whole ones as fit in, ascending.

    Each row has a random key, and the lowest are drawn: where rows are added behind, hardly any other of the earlier
    ones is drawn, so that training that goes on does not measure itself by rows that it has learned.
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
    """Return the group of each row as a number from 0, int64 (n,): rows with the same rarest feature are one group.

    The rarest feature of a row is the one that the fewest rows have, at least two and at most `LARGEST_SHARE` of all.
    A row without such a feature is a group by itself.
    """
    if not X.n_rows:
        return np.empty(0, np.int64)
    counts = np.bincount(X.indices, minlength=X.n_cols)
    order = np.argsort(counts, kind="stable")
    shared = (counts[order] > 1) & (counts[order] <= X.n_rows // LARGEST_SHARE)
    rank = np.empty(X.n_cols, np.int64)
    rank[order] = np.where(shared, np.arange(X.n_cols), X.n_cols)
    rarest = np.minimum.reduceat(np.append(rank[X.indices], X.n_cols), X.indptr[:-1])
    alone = (rarest == X.n_cols) | (np.diff(X.indptr) == 0)  # for an empty row reduceat returns what the next one has
    _, groups = np.unique(np.where(alone, X.n_cols + np.arange(X.n_rows), rarest), return_inverse=True)
    return groups.astype(np.int64)
