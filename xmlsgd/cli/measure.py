"""Rank the labels of test rows, timed, and measure the ranking."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.csr import CSR, Dataset
from ..errors import DataError
from ..estimators import XMLClassifier, XMLEnsemble
from ..metrics import evaluate_ranking, inverse_propensity
from ..training.progress_bar import in_batches

BATCH = 8192  # rows ranked between two movements of the bar


def measure(
    model: XMLClassifier | XMLEnsemble,
    test: Dataset,
    ks: Sequence[int] = (1, 3, 5),
    quiet: bool = False,
    label_weight: np.ndarray | None = None,
    inv_propensity: np.ndarray | None = None,
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the metrics in percent (`evaluate_ranking`), "predict_seconds" and "predict_rows_per_second".

    The time is that of ranking alone, without reading, compiling and measuring.
    """
    k = min(max(ks), len(model.classes_))
    labels, seconds = np.empty((test.n_rows, k), np.int32), 0.0
    model.load_kernels(test.X.span(0, min(BATCH, test.n_rows)), k, label_weight=label_weight)  # outside the timed part
    for rows in in_batches(test.n_rows, BATCH, "ranking", quiet=quiet):
        started = time.perf_counter()
        labels[rows], _ = model.predict_topk(test.X.take(rows), k=k, label_weight=label_weight)
        seconds += time.perf_counter() - started
    speed = {"predict_seconds": seconds, "predict_rows_per_second": test.n_rows / max(seconds, 1e-9)}
    return {**evaluate_ranking(test.Y, labels, ks=ks, inv_propensity=inv_propensity, metrics=metrics), **speed}


def inverse_propensity_of(
    model: XMLClassifier | XMLEnsemble, n_labels: int, Y_train: CSR | None = None, A: float = 0.55, B: float = 1.5
) -> np.ndarray | None:
    """Return q_l of each label by the labels `Y_train`, by default those the model was trained on.

    Warn and return None where the model does not know its label counts or was trained on too few rows.
    """
    if Y_train is not None:
        return inverse_propensity(Y_train, A, B, n_labels)
    try:
        return model.inverse_propensity(A, B, n_labels)
    except DataError as error:
        warnings.warn(f"PSP is left out: {error}; or pass --propensity", stacklevel=2)
        return None
