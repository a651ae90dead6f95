"""Rows that a candidate model learns later: its parts get what is new, and only what the rows touch is computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..data.csr import CSR
from ..devices.cpu import CPU
from .knn import row_votes
from .linear import LinearClassifiers
from .model import CandidateModel
from .weighting import idf, unit_rows


def with_more_rows(
    model: CandidateModel, X: CSR, Y: CSR, weight: np.ndarray | None, n_label_rows: int, device: CPU
) -> CandidateModel:
    """Return a model that has also learned these rows, which may have more features and labels.

    weight : float32 (n,), sample weights, None for ones. n_label_rows : how many of the rows, the last ones, are label
    rows. k-NN index and co-occurrence are what `fit` would have counted, but for labels that are not among
    the most frequent of a feature. Linear classifiers of labels that the rows have, or are offered, move by these rows
    alone; their calibration follows the frequencies. Stacking stays.
    """
    assert isinstance(model.linear, LinearClassifiers)  # a compact model cannot be trained further
    weight = np.ones(X.n_rows, np.float32) if weight is None else weight
    votes = row_votes(weight, n_label_rows)
    n_known = model.knn.Y.n_rows
    scale = np.concatenate([model.scale, idf(np.ones(X.n_cols - len(model.scale)), n_known)])
    with device.start():
        rows = unit_rows(X, scale, device)
        knn = model.knn.with_rows(rows, Y, votes, model.cooccurrence.totals > 0, device)
        cooccurrence = model.cooccurrence.with_rows(X, Y, weight, device)
        candidates, _ = knn.votes(rows, model.size, device, own=n_known)
        candidates, _ = cooccurrence.candidates(rows, candidates, device)
        frequencies = model.knn.frequency(Y.n_cols), knn.frequency(Y.n_cols)
        factors = [model.stacking.calibration.factors(each) for each in frequencies]
        linear = model.linear.with_rows(
            unit_rows(X, None, device), Y, weight, candidates, frequencies[0], factors, device
        )
    trees = model.stacking.trees and replace(model.stacking.trees, frequency=frequencies[1])
    stacking = model.stacking._replace(trees=trees)
    label_rows = np.append(model.label_rows, np.arange(knn.Y.n_rows - n_label_rows, knn.Y.n_rows, dtype=np.int64))
    return CandidateModel(scale, knn, cooccurrence, linear, stacking, model.size, label_rows)
