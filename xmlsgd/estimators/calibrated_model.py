"""Learn calibration and thresholds of a fitted model from held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .calibration import UNCALIBRATED, BetaCalibration
from .fitted import FittedModel
from .inference import Scorer
from .thresholds import Thresholds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates import HeldOutScores
    from ..data.csr import CSR
    from ..devices.base import Device
    from .training_data import TrainingData

SCORED = 64  # labels per held-out row by which a network alone is calibrated; fewer of a row reach their threshold


def calibrated(
    fitted: FittedModel, data: TrainingData, held_out: NDArray[np.intp], device: Device, stacked: HeldOutScores | None
) -> FittedModel:
    """Return the model with calibrated probabilities and thresholds, learned from scores of the held-out rows.

    One class per row has no thresholds, and is calibrated only with candidates.

    stacked : stacked scores of their candidates; None without candidates, or if nothing was stacked. They need a
    calibration, too, as true labels weigh more in stacking than others.
    """
    if not len(held_out) or (stacked is None and fitted.candidates is not None):
        return fitted
    Y = data.all_rows.Y.take(held_out)
    if stacked is not None and fitted.form == "multiclass":
        return replace(fitted, calibration=_calibration_of_classes(stacked, Y))
    if not fitted.has_probabilities:
        return fitted
    if stacked is None:
        scorer = Scorer(fitted.network, fitted.params, device)
        labels, scores = scorer.top_k(data.all_rows.X.take(held_out), min(SCORED, Y.n_cols))
    else:
        labels, scores = stacked
    found = labels >= 0
    labels, scores, truth = labels[found], scores[found], Y.has(labels)[found]
    if not truth.any():
        return fitted
    fitted = replace(fitted, calibration=BetaCalibration.fit(scores, truth))
    n_true, counts = (each.column_counts() for each in (Y, data.given_rows.Y))
    return replace(fitted, thresholds=Thresholds.fit(labels, fitted.probability(scores), truth, n_true, counts))


def _calibration_of_classes(stacked: HeldOutScores, Y: CSR) -> BetaCalibration:
    """Return the calibration of one class per row, learned from rows whose class is a candidate."""
    found = stacked.labels >= 0
    truth = Y.has(stacked.labels) & found
    rows = truth.any(axis=1)
    if not rows.any():
        return UNCALIBRATED
    scores = np.where(found, stacked.log_odds, -np.inf)[rows]
    return BetaCalibration.fit_classes(scores, truth[rows].argmax(axis=1))


def with_calibration_of(fitted: FittedModel, earlier: FittedModel) -> FittedModel:
    """Return the model with calibration and thresholds of an earlier one, which may have fewer labels."""
    thresholds = earlier.thresholds and earlier.thresholds.extended(fitted.network.n_labels)
    return replace(fitted, calibration=earlier.calibration, thresholds=thresholds)
