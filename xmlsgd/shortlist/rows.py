"""Rows as the shortlist compares them: weighed by how rare their features are, of norm 1."""

from __future__ import annotations

import numpy as np

from ..csr import CSR

ENTRIES, ROWS = 1 << 22, 1 << 16  # worked on at once, so that scratch arrays stay small beside the data


def rows_with(X: CSR) -> np.ndarray:
    """Return how many rows have each feature, int64 (F,); a stored zero is none."""
    counts = np.zeros(X.n_cols, np.int64)
    for first in range(0, X.nnz, ENTRIES):  # in parts, because counting copies what it counts
        part = slice(first, first + ENTRIES)
        counts += np.bincount(X.indices[part][X.data[part] != 0], minlength=X.n_cols)
    return counts


def rarity(X: CSR) -> np.ndarray:
    """Return the weight of each feature, float32 (F,): the root of its inverse document frequency, log((n+1)/(df+1)).

    A root, because texts come with inverse document frequencies already: the full weight was no better than its root,
    none at all was worse. What no row has is weighed like what one has.
    """
    return weight_of(np.clip(rows_with(X), 1, X.n_rows), X.n_rows)


def weight_of(frequency: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the weights of features that so many of `n_rows` rows have, float32; above 0 also where all have one."""
    return np.sqrt(np.log((n_rows + 1) / (frequency + 1)) + 1e-6).astype(np.float32)


def unit_rows(X: CSR, scale: np.ndarray) -> CSR:
    """Return X with feature f times scale[f] and rows of norm 1, rows of zeros as they are; the indices are shared."""
    data = np.empty(X.nnz, np.float32)
    for first in range(0, X.n_rows, ROWS):
        last = min(first + ROWS, X.n_rows)
        starts = X.indptr[first : last + 1]
        span, lengths = slice(starts[0], starts[-1]), np.diff(starts)
        values = np.multiply(X.data[span], scale[X.indices[span]], dtype=np.float64)  # squares of float32 may overflow
        norms = np.ones(last - first)
        some = lengths > 0
        if some.any():
            norms[some] = np.sqrt(np.add.reduceat(np.square(values), (starts[:-1] - starts[0])[some]))
        norms[norms <= 0] = 1
        data[span] = values / np.repeat(norms, lengths)
    return CSR(X.indptr, X.indices, data, X.n_cols)
