"""What `fit` decides by itself: batch size, epochs, learning rate, candidates, the scale of the first weights."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from ..data.csr import CSR
from ..errors import DataError, shorten
from ..nn.network import INPUT_SCALE
from ..nn.optimizers import Adam

BATCH = 256  # rows; the rates below were found with it
SMALL_BATCH = 32  # one register block of the bfloat16 products; a smaller batch costs as much
STEPS_PER_EPOCH = 64  # wanted at least: small data get smaller batches before more epochs
CANDIDATE_STEPS = 12  # the same beside candidates, where fewer steps are as good
EPOCHS = 10
MOST_EPOCHS = 200
LEAST_STEPS = 600  # of a run: small data get more epochs, up to MOST_EPOCHS
HIDDEN = (256,)
SMALL_ROWS = 10_000  # at most so many are small data: the model learns all, and its network is small
SMALL_HIDDEN = (64,)  # in a short run on small data: as accurate in less time (docs/decisions/candidates.md)
NEGATIVES = 1024  # where a sampler is asked for without a number
# Candidates (docs/candidates.md), all measured (docs/decisions/candidates.md):
N_CANDIDATES = 64  # candidate labels of a row
CANDIDATE_ROWS = 100  # with fewer rows there are no candidates
FREQUENT = 0.5  # a feature that this share of the rows has is frequent
DENSE = 0.75  # X is dense where frequent features have a larger share of its squared values
# The network beside candidates: a short run at a high rate learns most in as little time.
CANDIDATE_EPOCHS = 4
SMALL_NETWORK = 1000  # features and labels: with so few, interactions may decide all, and the run is not shortened
CANDIDATE_RATE_FACTOR = 5  # times Adam's rate in a run of `CANDIDATE_EPOCHS`, less in a longer one
CANDIDATE_NEGATIVES = 256
ADDED_ROWS_RATE_FACTOR = 0.05  # times the rate of `fit`, for rows that are added (docs/decisions/candidates.md)
ROUNDING = 0.1  # threshold of gradients (docs/decisions/training.md)
ROUNDED_LABELS = 1000  # with fewer labels gradients are exact
NORM_ROWS = 10_000  # the first rows tell the typical norm of a row, and which features are frequent
LEAST_NORM = 1e-30  # a smaller typical norm is refused
OUTLIERS = 0.05  # share of the largest rows that do not count: one of 1e6 would leave others pre-activations of nothing


def auto_batch_size(n_rows: int, has_candidates: bool) -> int:
    """Return 256 rows, less where an epoch would have fewer than 64 batches, 12 beside candidates; at least 32."""
    most = n_rows // (CANDIDATE_STEPS if has_candidates else STEPS_PER_EPOCH)
    return min(max(most // SMALL_BATCH * SMALL_BATCH, SMALL_BATCH), BATCH)


def auto_epochs(n_rows: int, batch_size: int, is_short: bool) -> int:
    """Return 10 epochs, more where a run would have fewer than 600 steps, at most 200; 4 of a short run."""
    if is_short:
        return CANDIDATE_EPOCHS
    per_epoch = math.ceil(n_rows / batch_size)
    return min(max(EPOCHS, math.ceil(LEAST_STEPS / per_epoch)), MOST_EPOCHS)


def auto_hidden(n_rows: int, is_short: bool) -> tuple[int, ...]:
    """Return 256 units, 64 for a short run on small data."""
    return SMALL_HIDDEN if is_short and n_rows <= SMALL_ROWS else HIDDEN


def auto_candidates(n_rows: int, n_labels: int, loss: str) -> int:
    """Return 64 labels, all if there are fewer, where labels are independent and rows enough to learn from; else 0."""
    return min(N_CANDIDATES, n_labels) if n_rows >= CANDIDATE_ROWS and loss == "bce" else 0


def dense_share(X: CSR) -> float:
    """Return the share of the squared values that lies in features of half the rows or more; of up to 10,000 rows.

    Neither an inverted index nor co-occurrence tells rows apart by such features.
    """
    squares, counts = feature_squares(X)
    return float(squares[counts >= FREQUENT * min(X.n_rows, NORM_ROWS)].sum() / max(squares.sum(), 1e-300))


def feature_squares(X: CSR) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of each feature's squared values, and how many are not 0; both (F,), of up to 10,000 rows."""
    entries = slice(0, X.indptr[min(X.n_rows, NORM_ROWS)])
    features, values = X.indices[entries], np.asarray(X.data[entries], dtype=np.float64)
    return np.bincount(features, values**2, X.n_cols), np.bincount(features[values != 0], minlength=X.n_cols)


def auto_rounding(n_labels: int, loss: str, optimizer: Any, kinds: Collection[str]) -> float:
    """Return the threshold of gradients: 0.1 for what was measured, else 0.

    That is BCE by Adam without clipping, which would not be without bias, 1,000 labels or more, and no GPU.
    """
    measured = loss == "bce" and isinstance(optimizer, Adam) and optimizer.clip_norm == 0
    return ROUNDING if measured and n_labels >= ROUNDED_LABELS and "cuda" not in kinds else 0.0


def auto_rate(optimizer: Any, batch_size: int, epochs: int | None = None, is_low: bool = False) -> tuple[float, str]:
    """Return the learning rate that suits the optimizer, and why.

    epochs : of a network beside candidates, None of another. Adam's rate then follows the square root of the batch size
    (Malladi et al. 2022), and falls with that of the epochs (docs/decisions/candidates.md). is_low : whether a trained
    network learns other rows.
    """
    rate: float | None = type(optimizer).default_rate
    if rate is None:
        raise DataError(f"learning_rate_init: no rate is known for {shorten(optimizer)}; pass a number")
    if epochs and isinstance(optimizer, Adam):
        factor = CANDIDATE_RATE_FACTOR * math.sqrt(CANDIDATE_EPOCHS / epochs * batch_size / BATCH)
        return float(f"{max(factor, 1) * rate:.2g}"), f"suits Adam for {epochs} epochs of batches of {batch_size}"
    if is_low:
        return ADDED_ROWS_RATE_FACTOR * rate, "low, because other rows would be forgotten"
    return rate, f"suits {type(optimizer).__name__}"


def input_scale(X: CSR) -> float:
    """Return the standard deviation of W0 that gives pre-activations one of 0.2 on rows of a typical norm.

    The norm is the root of the mean square over up to 10,000 rows, but for those without entries, and with the largest
    twentieth no larger than the next; with L2-normalised rows the scale is 0.2. Raises `DataError` for rows so small
    that W0 would leave float32.
    """
    n = min(X.n_rows, NORM_ROWS)
    starts = X.indptr[:n][np.diff(X.indptr[: n + 1]) > 0]
    squares = np.asarray(X.data[: X.indptr[n]], dtype=np.float64) ** 2
    squares = np.add.reduceat(squares, starts) if len(starts) else squares
    squares = squares[squares > 0]
    if not len(squares):
        return INPUT_SCALE
    norm = math.sqrt(np.minimum(squares, np.quantile(squares, 1 - OUTLIERS, method="lower")).mean())
    if norm < LEAST_NORM:
        raise DataError(f"X: rows must have a norm of {LEAST_NORM:g} or more, got {norm:.1g}; scale X")
    return INPUT_SCALE / norm
