"""Quick models to save, and ways to alter what was saved."""

from __future__ import annotations

import json

import numpy as np
import scipy.sparse as sp

from xmlsgd import XMLClassifier
from xmlsgd.data.files.folders import read_folder, write_folder


def some_rows(seed=0):
    """Return X (90, 30) and Y (90, 12) that can be learned."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(size=(90, 12)) < 0.2
    X = np.hstack([Y * rng.uniform(0.5, 1, Y.shape), rng.uniform(size=(90, 18)) * 0.1]).astype(np.float32)
    return sp.csr_array(X), sp.csr_array(Y.astype(int))


def small(**parameters):
    """Return a quick classifier with a fixed seed."""
    return XMLClassifier(**{"hidden_layer_sizes": (16,), "max_epochs": 4, "random_state": 0, "n_jobs": 1, **parameters})


def same_answers(first, second, X):
    """Return whether two models agree in every bit."""
    return all(np.array_equal(a, b) for a, b in zip(first.predict_topk(X), second.predict_topk(X), strict=True))


def rewrite(folder, change=None, arrays=None):
    """Write the model anew with a changed description and arrays, and with right checksums."""
    description, old, *_ = read_folder(folder)
    old = {name: np.array(array) for name, array in old.items()}
    write_folder(folder, {**description, **(change or {})}, {**old, **(arrays or {})})


def edit_manifest(folder, edit):
    """Change the manifest in place."""
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    edit(manifest)
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
