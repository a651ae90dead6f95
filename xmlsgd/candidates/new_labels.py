"""Linear classifiers of labels that come with added rows: the nearest earlier rows, which lack them, are negatives.

Only the k-NN index still has earlier rows: of norm 1 after weighting, without the most frequent features. The new
classifiers learn all rows in this form; then their weights are converted to those for unweighted rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..data.csr import CSR, pointers
from ..devices.cpu import CPU
from .knn import KNNIndex
from .linear import NONE_HELD_OUT, LinearClassifiers, Pairs, with_random_negatives
from .weighting import without_wide_rows

NEIGHBORS = 16  # earlier rows that are negatives of the new labels of an added row (docs/decisions/stacking.md)


class AddedRows(NamedTuple):
    """Added rows.

    X : rows of norm 1 after weighting by `feature_weights`, float32 (F,). Y : their labels. weight : sample weights,
    float32 (n,). candidates : candidate labels, int32 (n, M), as hard negatives.
    """

    X: CSR
    Y: CSR
    weight: np.ndarray
    candidates: np.ndarray
    feature_weights: np.ndarray


def fit_new_labels(
    before: KNNIndex, after: KNNIndex, added: AddedRows, is_new: np.ndarray, cost: float, device: CPU
) -> LinearClassifiers:
    """Return classifiers of new labels, bool (L,), not calibrated; those of other labels have no weights.

    before, after : the index without and with the added rows. The device must have been started.
    """
    rows, weight, n_known = added.X, without_wide_rows(added.X, added.Y, added.weight), before.Y.n_rows
    true = added.Y.where(is_new[added.Y.indices])
    of_true = _row_numbers(true)
    true_labels = _ones(of_true, true.indices, (rows.n_rows, len(is_new)))
    row, column = np.nonzero((added.candidates >= 0) & is_new[added.candidates])
    proposed = _ones(row, added.candidates[row, column], true_labels.shape)
    near = _nearest(before, rows, np.unique(of_true), device)
    signed = sp.vstack([-(near.T @ true_labels), 2 * true_labels - proposed])
    weight = np.concatenate([before.weight, weight])
    pairs_of_label = (sp.diags_array((weight > 0).astype(np.float32)) @ signed).T.tocsr()
    pairs_of_label.eliminate_zeros()
    pairs_of_label.sort_indices()
    listed, starts = pairs_of_label.indices, pairs_of_label.indptr.astype(np.int64)
    numbers = np.where(pairs_of_label.data > 0, listed, -1 - listed).astype(np.int32)
    X = CSR.from_scipy(after.postings.to_scipy().T.tocsr())
    pairs = Pairs(X, weight, numbers, starts, pointers(np.diff(X.indptr)[listed])[starts])
    pairs = with_random_negatives(pairs, n_known, device)
    found, _ = LinearClassifiers.fit_and_score(pairs, cost, NONE_HELD_OUT, device)
    # A weighted row is the unweighted one times `feature_weights`, divided by a norm that differs little between rows.
    squares = np.bincount(_row_numbers(rows), (rows.data / added.feature_weights[rows.indices]) ** 2)
    norms = np.sqrt(squares[squares > 0])
    if len(norms):  # without any feature of added rows, weights stay as they are
        found.weights.data[:] *= np.float32(norms.mean()) * added.feature_weights[found.weights.indices]
    return found


def _nearest(index: KNNIndex, X: CSR, rows: np.ndarray, device: CPU) -> sp.csr_array:
    """Return the `NEIGHBORS` nearest rows of the index of some `rows` of X, as a matrix of ones (n, rows of the index).

    Each row of the index votes for itself, so that the labels with the most votes are the nearest rows.
    """
    postings, n = index.postings, index.Y.n_rows
    ends = np.pad(postings.indptr, (0, X.n_cols - postings.n_rows), "edge")  # no row of the index has new features
    itself = CSR(np.arange(n + 1), np.arange(n, dtype=np.int32), np.ones(n, np.float32), n)
    weight = (index.weight > 0).astype(np.float32)
    voters = KNNIndex(CSR(ends, postings.indices, postings.data, n), itself, weight)
    found, _ = voters.votes(X.take(rows), NEIGHBORS, device)
    row, column = np.nonzero(found >= 0)
    return _ones(rows[row], found[row, column], (X.n_rows, n))


def _ones(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """Return a matrix of ones at these positions."""
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape)


def _row_numbers(matrix: CSR) -> np.ndarray:
    """Return the number of the row of each entry."""
    return np.repeat(np.arange(matrix.n_rows), np.diff(matrix.indptr))
