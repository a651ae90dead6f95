"""Feature weights (square root of the inverse document frequency, for k-NN and co-occurrence), and rows of norm 1."""

from __future__ import annotations

import numpy as np

from ..data.csr import CSR
from ..devices.cpu import CPU
from ..devices.cpu.kernels import candidates

MOST_PAIRS = 1 << 24  # most pairs of a feature and a label in a row, such as 16,000 features and 1,000 labels
ENTRIES = 1 << 22  # entries that are counted at a time, so that temporary arrays are small


def document_frequency(X: CSR) -> np.ndarray:
    """Return the number of rows that have each feature, int64 (F,); stored zeros do not count."""
    counts = np.zeros(X.n_cols, np.int64)
    for first in range(0, X.nnz, ENTRIES):  # in parts, because bincount copies its input
        part = slice(first, first + ENTRIES)
        counts += np.bincount(X.indices[part][X.data[part] != 0], minlength=X.n_cols)
    return counts


def idf_weights(X: CSR) -> np.ndarray:
    """Return the weight of each feature, float32 (F,): the square root of log((n + 1) / (df + 1)).

    Rows of texts usually are weighted by inverse document frequency already. The full weight was no better than its
    square root, and no weight was worse. A feature without rows has the weight of a feature in one row.
    """
    return idf(np.clip(document_frequency(X), 1, X.n_rows), X.n_rows)


def idf(frequency: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the weights, float32, of features with these document frequencies; above 0 even if all rows have one."""
    return np.sqrt(np.log((n_rows + 1) / (frequency + 1)) + 1e-6).astype(np.float32)


def unit_rows(X: CSR, feature_weights: np.ndarray | None, device: CPU) -> CSR:
    """Return X with rows of norm 1; zero rows stay zero. The result shares the indices of X.

    feature_weights : factors by which columns are multiplied first, float32 (F,); None for ones.
    """
    feature_weights = np.empty(0, np.float32) if feature_weights is None else feature_weights
    data = np.empty(X.nnz, np.float32)
    device.run(candidates.unit_rows, X.indptr, X.indices, X.data, feature_weights, data)
    return CSR(X.indptr, X.indices, data, X.n_cols)


def without_wide_rows(X: CSR, Y: CSR, weight: np.ndarray) -> np.ndarray:
    """Return the sample weights, float32 (n,), with 0 for rows of over `MOST_PAIRS` pairs of a feature and a label.

    Counting co-occurrence and training linear classifiers take time for each pair of a row, and a row with so many
    pairs tells little about any of them.
    """
    n_pairs = np.diff(X.indptr).astype(np.int64) * np.diff(Y.indptr)
    return np.where(n_pairs > MOST_PAIRS, np.float32(0), weight)
