"""Values of "auto" parameters: batch size, epochs, learning rate, candidates; and the scale of the initial weights."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from ..data.csr import CSR, Dataset
from ..errors import DataError, shorten
from ..nn.network import INPUT_SCALE
from ..nn.optimizers import RMSprop

BATCH = 256  # rows; learning rates were tuned with it
SMALL_BATCH = 32  # one register block of the bfloat16 products; a smaller batch takes as long
STEPS_PER_EPOCH = 64  # aimed at: small data get smaller batches before they get more epochs
CANDIDATE_STEPS = 12  # the same with candidates, where fewer steps are as good
EPOCHS = 10
MOST_EPOCHS = 200
LEAST_STEPS = 600  # of a run: small data get more epochs, up to MOST_EPOCHS
HIDDEN = (256,)
SMALL_ROWS = 10_000  # with at most this many rows, several folds are held out and the network is small
SMALL_HIDDEN = (64,)  # with candidates, on small data or rows of few labels: as accurate in less time
FEW_LABELS = 4  # of a row, on average
NEGATIVES = 1024  # with a sampler, if `negatives` is "auto"
# Candidates (docs/candidates.md); all numbers are measured (docs/decisions/candidates.md):
N_CANDIDATES = 64  # candidate labels per row by votes; co-occurrence adds others (`candidates.model`)
# Where rows have many labels, more for each of them (docs/decisions/candidates.md).
CANDIDATES_PER_LABEL, MOST_CANDIDATES, MOST_SHARE_OF_LABELS = 8, 256, 1 / 16
CANDIDATE_ROWS = 100  # least rows for candidates
FREQUENT = 0.5  # a feature is frequent if at least this share of the rows has it
MOST_FREQUENT_SHARE = 0.75  # of the squared values of X that frequent features may have for candidates
# A network that is one of several base models: few epochs at a high rate learn most in the least time.
CANDIDATE_EPOCHS = 4
# But few long rows with many labels are learned in more epochs, at most 12 epochs and 1,280 steps: until each label has
# been drawn 20 times as a negative, but no more than one epoch for five features of a row. Linear classifiers of long
# rows take most of the time.
LEAST_DRAWS, FEATURES_PER_EPOCH, MOST_CANDIDATE_STEPS, MOST_CANDIDATE_EPOCHS = 20, 5, 1280, 12
SMALL_NETWORK = 1000  # features and labels: with so few, interactions may matter most, and it trains as if alone
CANDIDATE_RATE_FACTOR = 4  # times the rate of Adam or RMSprop in a run of `CANDIDATE_EPOCHS`, less in a longer one
CANDIDATE_NEGATIVES = 256
ADDED_ROWS_RATE_FACTOR = 0.05  # times the rate of `fit`, for rows that are added (docs/decisions/stacking.md)
GRADIENT_ROUNDING = 0.1  # threshold of gradients (docs/decisions/training.md)
ROUNDED_LABELS = 1000  # with fewer labels, gradients are exact
NORM_ROWS = 10_000  # the first rows, of which the typical norm and the frequent features are computed
LEAST_NORM = 1e-12  # rows of a smaller typical norm are refused: squares of their gradients would leave float32
OUTLIERS = 0.05  # share of the largest rows whose norm is cut: one of 1e6 would scale the activations of others to 0


def auto_batch_size(n_rows: int, has_candidates: bool) -> int:
    """Return 256 rows, or fewer if an epoch would have fewer than 64 batches (12 with candidates); at least 32."""
    most = n_rows // (CANDIDATE_STEPS if has_candidates else STEPS_PER_EPOCH)
    return min(max(most // SMALL_BATCH * SMALL_BATCH, SMALL_BATCH), BATCH)


def auto_epochs(dataset: Dataset, batch_size: int, is_base_model: bool) -> int:
    """Return 4 epochs with candidates, or up to 12 for few long rows; else 10, or up to 200 for at least 600 steps."""
    per_epoch = math.ceil(dataset.n_rows / batch_size)
    if not is_base_model:
        return min(max(EPOCHS, math.ceil(LEAST_STEPS / per_epoch)), MOST_EPOCHS)
    draws = per_epoch * CANDIDATE_NEGATIVES / dataset.n_labels  # of a label as a negative, in an epoch
    features = dataset.X.nnz / dataset.n_rows
    most = min(features / FEATURES_PER_EPOCH, MOST_CANDIDATE_STEPS / per_epoch, MOST_CANDIDATE_EPOCHS)
    return max(CANDIDATE_EPOCHS, int(min(LEAST_DRAWS / draws, most)))


def auto_hidden(rows: Dataset, is_base_model: bool) -> tuple[tuple[int, ...], str]:
    """Return one layer of 256 units, or of 64 to assist candidates on small data or on rows of few labels, and why."""
    if is_base_model and rows.n_rows <= SMALL_ROWS:
        return SMALL_HIDDEN, f"with candidates, at most {SMALL_ROWS} rows"
    if is_base_model and rows.Y.nnz <= FEW_LABELS * rows.n_rows:
        return SMALL_HIDDEN, f"with candidates, at most {FEW_LABELS} labels a row"
    return HIDDEN, "the default"


def auto_candidates(n_rows: int, Y: CSR, loss: str) -> tuple[int, str]:
    """Return the number of candidates per row, 64, or more for many labels a row, and why.

    It is 0 if candidates would not help, with few learned rows, or a loss that is not "bce".
    """
    if loss != "bce":
        return 0, f"loss {loss}"
    why = f"{n_rows} rows, {Y.n_cols} labels, {Y.nnz / Y.n_rows:.1f} a row"
    if n_rows < CANDIDATE_ROWS:
        return 0, why
    of_labels = min(CANDIDATES_PER_LABEL * Y.nnz // Y.n_rows, int(MOST_SHARE_OF_LABELS * Y.n_cols), MOST_CANDIDATES)
    return min(max(of_labels, N_CANDIDATES), Y.n_cols), why


def frequent_share(X: CSR) -> float:
    """Return the share of the squared values that lies in frequent features.

    Such features help neither an inverted index nor co-occurrence. Only the first 10,000 rows count.
    """
    _, squares, counts = feature_squares(X)
    return float(squares[counts >= FREQUENT * min(X.n_rows, NORM_ROWS)].sum() / max(squares.sum(), 1e-300))


def feature_squares(X: CSR) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, and the sum of squared values and the number of nonzero values of each, of up to 10,000 rows.

    Features that do not occur may be left out: arrays of all would take much memory before it is estimated.
    """
    entries = slice(0, X.indptr[min(X.n_rows, NORM_ROWS)])
    found, values = X.indices[entries], np.asarray(X.data[entries], dtype=np.float64)
    features = np.arange(min(X.n_cols, len(found)), dtype=np.int32)
    if len(features) < X.n_cols:
        features, found = np.unique(found, return_inverse=True)
    n = len(features)
    return features, np.bincount(found, values**2, n), np.bincount(found[values != 0], minlength=n)


def auto_optimizer(is_base_model: bool) -> str:
    """Return "row_rmsprop" for one of several base models, else "adam" (docs/decisions/training.md)."""
    return "row_rmsprop" if is_base_model else "adam"


def auto_rounding(n_labels: int, loss: str, optimizer: Any, kinds: Collection[str]) -> float:
    """Return the threshold of gradient sparsification: 0.1 where that was measured to be as accurate, else 0.

    It was measured with BCE, Adam or RMSprop, 1,000 labels or more, and no GPU. Clipping would make it biased.
    """
    measured = loss == "bce" and isinstance(optimizer, RMSprop) and optimizer.clip_norm == 0
    return GRADIENT_ROUNDING if measured and n_labels >= ROUNDED_LABELS and "cuda" not in kinds else 0.0


def auto_rate(optimizer: Any, batch_size: int, epochs: int | None, is_low: bool) -> tuple[float, str]:
    """Return the learning rate that suits the optimizer, and why.

    epochs : number of epochs of a network with candidates, else None. With candidates, the rate of Adam and RMSprop is
    proportional to the square root of batch size / epochs (Malladi et al. 2022; docs/decisions/candidates.md). is_low :
    whether a network that is already trained learns more rows.
    """
    rate: float | None = type(optimizer).default_rate
    if rate is None:
        raise DataError(f"learning_rate_init: no rate is known for {shorten(optimizer)}; pass a number")
    if epochs and isinstance(optimizer, RMSprop):
        factor = CANDIDATE_RATE_FACTOR * math.sqrt(CANDIDATE_EPOCHS / epochs * batch_size / BATCH)
        why = f"suits {type(optimizer).__name__} for {epochs} epochs of batches of {batch_size}"
        return float(f"{max(factor, 1) * rate:.2g}"), why
    if is_low:
        return ADDED_ROWS_RATE_FACTOR * rate, "low, because other rows would be forgotten"
    return rate, f"suits {type(optimizer).__name__}"


def input_scale(X: CSR) -> float:
    """Return the standard deviation of W0 that gives pre-activations a standard deviation of 0.2.

    This holds for rows of the typical norm: the root mean square of the norms of the first 10,000 rows, without empty
    rows, and with the largest twentieth cut to the next smaller norm. For L2-normalised rows the scale is 0.2. Raises
    `DataError` if rows are so small that squares of gradients would leave the range of float32.
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
