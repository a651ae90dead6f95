"""Rows as the shortlist compares them: weighed by how rare their features are, of norm 1."""

from __future__ import annotations

import numpy as np

from ..data.csr import CSR
from ..devices.cpu import CPU
from ..devices.cpu.kernels import lists

ENTRIES = 1 << 22  # counted at once, so that scratch arrays stay small beside the data


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


def unit_rows(X: CSR, scale: np.ndarray, device: CPU) -> CSR:
    """Return X with feature f times scale[f] and rows of norm 1, rows of zeros as they are; the indices are shared."""
    data = np.empty(X.nnz, np.float32)
    device.run(lists.unit_rows, X.indptr, X.indices, X.data, scale, data)
    return CSR(X.indptr, X.indices, data, X.n_cols)
