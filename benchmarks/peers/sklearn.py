"""scikit-learn: one linear classifier a label, OneVsRestClassifier over SGDClassifier with log loss.

Its coefficients are dense float64, F x L of them, so it runs on small data sets only and says so on others.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from sklearn.multiclass import OneVsRestClassifier

from .runner import K, Problem, Runner, main

PREDICT_BATCH = 1024


class OneVsRest(Runner):
    """OneVsRestClassifier(SGDClassifier(loss="log_loss"))."""

    packages = ("scikit-learn", "numpy", "scipy")
    settings: ClassVar[dict[str, dict[str, Any]]] = {"default": {"loss": "log_loss"}}

    def load(self, problem: Problem) -> None:
        """Refuse a model that would not fit half of the memory."""
        needed = 8 * problem.X.shape[1] * problem.Y.shape[1]
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > memory / 2:
            raise SystemExit(f"scikit-learn: the coefficients would take {needed / 1e9:.1f} of {memory / 1e9:.1f} GB")

    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Fit every label that has a row; threads, because SGDClassifier releases the interpreter lock."""
        from joblib import parallel_config

        self.used = np.flatnonzero(np.asarray(problem.Y.sum(axis=0)).ravel())
        base = SGDClassifier(random_state=problem.seed, **parameters)
        self.model = OneVsRestClassifier(base, n_jobs=problem.threads)
        with parallel_config("threading"):
            self.model.fit(problem.X, problem.Y[:, self.used])

    def save(self, folder: Path) -> None:
        """Pickle the model, scikit-learn's usual form."""
        (folder / "model.pickle").write_bytes(pickle.dumps(self.model))

    def serve(self, problem: Problem, folder: Path) -> None:
        """Stack the coefficients: the estimator itself would go through the labels one by one."""
        self.weights = np.hstack([one.coef_.T for one in self.model.estimators_])
        self.bias = np.hstack([one.intercept_ for one in self.model.estimators_])

    def predict(self, X: sp.csr_matrix) -> np.ndarray:
        """Return the best K labels, batch by batch."""
        out = np.full((X.shape[0], K), -1, np.int64)
        k = min(K, len(self.used))
        for start in range(0, X.shape[0], PREDICT_BATCH):
            scores = X[start : start + PREDICT_BATCH] @ self.weights + self.bias
            best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
            out[start : start + len(best), :k] = self.used[np.take_along_axis(best, order, axis=1)]
        return out


if __name__ == "__main__":
    main(OneVsRest())
