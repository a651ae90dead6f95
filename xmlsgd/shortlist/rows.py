"""Rows as the shortlist compares them: weighed by how rare their features are, of norm 1."""

from __future__ import annotations

import numpy as np

from ..csr import CSR


def rarity(X: CSR) -> np.ndarray:
    """Return the weight of each feature, float32 (F,): the root of its inverse document frequency, log((n+1)/(df+1)).

    A root, because texts come with inverse document frequencies already: once more in full was no better, not at all
    worse. What no row has is weighed like what one has.
    """
    rows_with = np.bincount(X.indices, minlength=X.n_cols)
    return np.sqrt(np.log((X.n_rows + 1) / (np.minimum(np.maximum(rows_with, 1), X.n_rows) + 1)) + 1e-6).astype(
        np.float32
    )


def unit_rows(X: CSR, scale: np.ndarray) -> CSR:
    """Return X with feature f times scale[f] and rows of norm 1, rows of zeros as they are; the indices are shared."""
    data = X.data * scale[X.indices]
    squares = np.concatenate([[0.0], np.cumsum(np.square(data, dtype=np.float64))])
    norms = np.sqrt(squares[X.indptr[1:]] - squares[X.indptr[:-1]])
    norms[norms <= 0] = 1
    data /= np.repeat(norms, np.diff(X.indptr)).astype(np.float32)
    return CSR(X.indptr, X.indices, data, X.n_cols)
