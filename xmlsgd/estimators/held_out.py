"""Choose the rows to hold out for stacking, calibration and thresholds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..data.held_out import HeldOutSize, are_copies, held_out_folds
from ..errors import warn
from .training_data import TrainingData

MANY_COPIES = 0.2  # share of rows that are copies, from which on `fit` warns (docs/decisions/stacking.md)


def folds_to_hold_out(data: TrainingData, size: HeldOutSize, n_folds: int, seed: int) -> list[NDArray[np.intp]]:
    """Return the folds of held-out rows, ascending row indices intp (n,), from rows of weight above 0; may be empty."""
    rows = np.arange(data.n_given_rows) if data.weight is None else np.flatnonzero(data.weight[: data.n_given_rows])
    groups = None if data.groups is None else data.groups[rows]
    found = [rows[fold] for fold in held_out_folds(len(rows), seed, size, groups, n_folds)]
    if not found and (n := size.of(len(rows))):
        _warn_of_large_groups(groups, size.cutoff, n)
    if found and groups is None:
        _warn_of_copies(are_copies(data.given_rows)[rows].mean())
    return found


def _warn_of_large_groups(groups: NDArray[np.int64] | None, least: int, most: int) -> None:
    """Warn that no group has as few rows as are held out."""
    smallest = np.unique(groups, return_counts=True)[1].min()
    text = f"groups: none could be held out: needs {least} to {most} rows in whole groups, the smallest has {smallest}"
    warn(f"{text}; stacking and thresholds keep their defaults")


def _warn_of_copies(share: float) -> None:
    """Warn if many rows are copies, given their share."""
    if share > MANY_COPIES:
        text = f"X: {share:.0%} of the rows have the features and labels of another, so that held-out rows seem easy"
        warn(f"{text}; if new rows will not be such copies, remove them, or pass groups='similar' (--groups similar)")
