"""Labels chosen by their probability, however many a row has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .blocks import row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ...data.csr import CSR
    from .scorer import Ranker

FIRST_K = 16  # labels that are looked at; more, where all of them are chosen
GROWTH = 4


def labels_above(
    ranker: Ranker,
    X: CSR,
    probability: Callable[[CSR, NDArray[np.intp], NDArray[np.float32]], NDArray[np.float64]],
    thresholds: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return pairs of a row and a label, ordered, whose probability is at least the label's threshold (L,).

    probability : of scores (rows, k) of some rows of X. Labels are asked for in the order of the ranking until none can
    be chosen any more, so that few of many labels cost little.
    """
    n_labels, least = len(thresholds), thresholds.min()
    chosen_rows, chosen_labels = [np.empty(0, np.intp)], [np.empty(0, np.int32)]
    for rows in row_blocks(X.n_rows, 8 * FIRST_K):
        k = min(FIRST_K, n_labels)
        while len(rows):
            labels, scores = ranker.top_k(X.take(rows), k)
            chances = probability(X, rows, scores)
            more = (labels[:, -1] >= 0) & (chances[:, -1] >= least) & (k < n_labels)
            row, rank = np.nonzero((labels >= 0) & (chances >= thresholds[labels]) & ~more[:, None])
            chosen_rows.append(rows[row])
            chosen_labels.append(labels[row, rank])
            rows, k = rows[more], min(GROWTH * k, n_labels)
    found, labels = np.concatenate(chosen_rows), np.concatenate(chosen_labels)
    order = np.lexsort((labels, found))
    return found[order], labels[order]
