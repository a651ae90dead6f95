"""A small data set with a structure that any sound model finds, and a quick model."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmlsgd import XMLClassifier

N_LABELS, N_FEATURES = 40, 120


def planted(n_rows, seed=0, n_labels=N_LABELS):
    """Return X (n, F) and Y (n, L): every label has three features of its own, rows have one to three labels."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n_rows, n_labels), dtype=np.int64)
    for row in Y:
        row[rng.choice(n_labels, rng.integers(1, 4), replace=False)] = 1
    own = np.kron(np.eye(n_labels), np.ones(3))[:, :N_FEATURES]
    X = Y @ own * rng.uniform(0.5, 1.5, (n_rows, own.shape[1]))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)


def small(**parameters):
    """Return a quick classifier with a fixed seed."""
    settings = {"hidden_layer_sizes": (32,), "max_epochs": 12, "random_state": 0, "n_jobs": 1}
    return XMLClassifier(**{**settings, **parameters})
