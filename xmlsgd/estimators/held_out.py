"""Held-out rows, from which stacking, calibration and thresholds learn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..data.held_out import (
    HELD_OUT_NETWORK,
    HELD_OUT_NONE,
    HELD_OUT_SMALL,
    HELD_OUT_STACKING,
    HeldOutSize,
    held_out_folds,
)
from ..errors import warn
from .calibration import UNCALIBRATED, BetaCalibration
from .fitted import FittedModel, are_probabilities
from .inference import Scorer
from .thresholds import Thresholds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates import HeldOutScores
    from ..data.csr import CSR
    from ..devices.base import Device
    from .targets import Form
    from .training_data import TrainingData

FOLDED_ROWS, MOST_FOLDS = 600, 10  # rows that all folds hold out: more hardly help (docs/decisions/stacking.md)
SCORED = 64  # labels per held-out row by which a network alone is calibrated; fewer of a row reach their threshold


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
    rows = np.arange(data.n_rows) if data.weight is None else np.flatnonzero(data.weight[: data.n_rows])
    groups = None if data.groups is None else data.groups[rows]
    found = [rows[fold] for fold in held_out_folds(len(rows), seed, size, groups, n_folds)]
    if not found and (n := size.of(len(rows))):
        smallest = np.unique(groups, return_counts=True)[1].min()
        text = f"groups: none could be held out: needs {size.least} to {n} rows in whole groups, the smallest has "
        warn(f"{text}{smallest}; stacking and thresholds keep their defaults")
    return found


def weight_without(data: TrainingData, held_out: NDArray[np.intp]) -> NDArray[np.float32] | None:
    """Return the weights of the rows, with 0 for those held out."""
    if not len(held_out):
        return data.weight
    weight = np.ones(data.dataset.n_rows, np.float32) if data.weight is None else data.weight.copy()
    weight[held_out] = 0
    return weight


def with_thresholds(
    fitted: FittedModel, data: TrainingData, held_out: NDArray[np.intp], device: Device, stacked: HeldOutScores | None
) -> FittedModel:
    """Return the model with calibrated probabilities and thresholds, learned from scores of the held-out rows.

    One class per row has no thresholds, and is calibrated only with candidates.

    stacked : stacked scores of their candidates; None without candidates, or if nothing was stacked. They need a
    calibration, too, as true labels weigh more in stacking than others.
    """
    if not len(held_out) or (stacked is None and fitted.candidates is not None):
        return fitted
    Y = data.dataset.Y.take(held_out)
    if stacked is not None and fitted.form == "multiclass":
        return replace(fitted, calibration=_calibration_of_classes(stacked, Y))
    if not fitted.has_probabilities:
        return fitted
    if stacked is None:
        scorer = Scorer(fitted.network, fitted.params, device)
        labels, scores = scorer.top_k(data.dataset.X.take(held_out), min(SCORED, Y.n_cols))
    else:
        labels, scores = stacked
    found = labels >= 0
    labels, scores, truth = labels[found], scores[found], Y.has(labels)[found]
    if not truth.any():
        return fitted
    fitted = replace(fitted, calibration=BetaCalibration.fit(scores, truth))
    n_true, counts = (each.column_counts() for each in (Y, data.rows.Y))
    return replace(fitted, thresholds=Thresholds.fit(labels, fitted.probability(scores), truth, n_true, counts))


def _calibration_of_classes(stacked: HeldOutScores, Y: CSR) -> BetaCalibration:
    """Return the calibration of one class per row, learned from rows whose class is a candidate."""
    found = stacked.labels >= 0
    truth = Y.has(stacked.labels) & found
    rows = truth.any(axis=1)
    if not rows.any():
        return UNCALIBRATED
    scores = np.where(found, stacked.scores, -np.inf)[rows]
    return BetaCalibration.fit_classes(scores, truth[rows].argmax(axis=1))


def with_calibration_of(fitted: FittedModel, earlier: FittedModel) -> FittedModel:
    """Return the model with calibration and thresholds of an earlier one, which may have fewer labels."""
    thresholds = earlier.thresholds and earlier.thresholds.extended(fitted.network.n_labels)
    return replace(fitted, calibration=earlier.calibration, thresholds=thresholds)
