"""Decide how many rows to hold out for stacking, calibration and thresholds, and choose them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..data.held_out import (
    HELD_OUT_NETWORK,
    HELD_OUT_NONE,
    HELD_OUT_SMALL,
    HELD_OUT_STACKING,
    HeldOutSize,
    are_copies,
    held_out_folds,
)
from ..errors import warn
from .fitted import are_probabilities
from .targets import Form
from .training_data import TrainingData

FOLDED_ROWS, MOST_FOLDS = 600, 10  # rows that all folds hold out: more hardly help (docs/decisions/stacking.md)
MANY_COPIES = 0.2  # share of rows that are copies, from which on `fit` warns (docs/decisions/stacking.md)


def held_out_size(loss: str, form: Form, n_candidates: int) -> HeldOutSize:
    """Return how many rows to hold out: for stacking with candidates, else for calibration if scores allow it."""
    if n_candidates:
        return HELD_OUT_STACKING
    return HELD_OUT_NETWORK if are_probabilities(loss, form) else HELD_OUT_NONE


def small_folds(n_rows: int) -> tuple[HeldOutSize, int]:
    """Return the size of each fold of small data, and the number of folds: enough to hold out 600 rows in all."""
    n = HELD_OUT_SMALL.of(n_rows)
    return HELD_OUT_SMALL, min(math.ceil(FOLDED_ROWS / n), MOST_FOLDS) if n else 0


def folds_to_hold_out(data: TrainingData, size: HeldOutSize, n_folds: int, seed: int) -> list[NDArray[np.intp]]:
    """Return the folds of held-out rows, ascending row indices intp (n,), from rows of weight above 0; may be empty."""
    rows = np.arange(data.n_given_rows) if data.weight is None else np.flatnonzero(data.weight[: data.n_given_rows])
    groups = None if data.groups is None else data.groups[rows]
    found = [rows[fold] for fold in held_out_folds(len(rows), seed, size, groups, n_folds)]
    if not found and (n := size.of(len(rows))):
        smallest = np.unique(groups, return_counts=True)[1].min()
        text = f"groups: none could be held out: needs {size.cutoff} to {n} rows in whole groups, the smallest has "
        warn(f"{text}{smallest}; stacking and thresholds keep their defaults")
    if found and groups is None and (share := are_copies(data.given_rows)[rows].mean()) > MANY_COPIES:
        text = f"X: {share:.0%} of the rows have the features and labels of another, so that held-out rows seem easy"
        warn(f"{text}; if new rows will not be such copies, remove them, or pass groups='similar' (--groups similar)")
    return found


def weight_without(data: TrainingData, held_out: NDArray[np.intp]) -> NDArray[np.float32] | None:
    """Return the weights of the rows, with 0 for those held out."""
    if not len(held_out):
        return data.weight
    weight = np.ones(data.all_rows.n_rows, np.float32) if data.weight is None else data.weight.copy()
    weight[held_out] = 0
    return weight
