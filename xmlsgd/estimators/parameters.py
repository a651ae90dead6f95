"""The constructor's parameters: which values are allowed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..algorithms import get_algorithm
from ..errors import DataError, shorten
from ..losses import get_loss
from ..optimizers import Optimizer, get_optimizer
from ..schedules import SCHEDULES
from .training import thread_count

if TYPE_CHECKING:
    from .classifier import XMLClassifier


def check_parameters(model: XMLClassifier) -> None:
    """Raise `DataError` for a parameter outside its range."""
    sizes = model.hidden_layer_sizes
    if np.ndim(sizes) != 1 or len(sizes) == 0 or not all(is_count(size) for size in sizes):
        raise DataError(
            f"hidden_layer_sizes: must be one or more positive integers, as in (256,), got {shorten(sizes)}"
        )
    if model.loss != "auto":
        get_loss(model.loss)
    optimizer_of(model)
    if model.learning_rate not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise DataError(f"learning_rate: must be one of {known}, got {shorten(model.learning_rate)}")
    rate = model.learning_rate_init
    if rate != "auto" and not (is_number(rate) and 0 < rate < math.inf):
        raise DataError(f"learning_rate_init: must be 'auto' or above 0, got {shorten(rate)}")
    for name in ("batch_size", "max_epochs"):
        value = getattr(model, name)
        if value != "auto" and not is_count(value):
            raise DataError(f"{name}: must be 'auto' or a positive integer, got {shorten(value)}")
    if not is_count(model.n_epochs_no_change):
        raise DataError(f"n_epochs_no_change: must be a positive integer, got {shorten(model.n_epochs_no_change)}")
    for name in ("warm_up", "input_dropout", "hidden_dropout"):
        if not (is_number(getattr(model, name)) and 0 <= getattr(model, name) < 1):
            raise DataError(f"{name}: must be in [0, 1), got {shorten(getattr(model, name))}")
    for name in ("weight_decay", "clip_norm", "tol"):
        if not (is_number(getattr(model, name)) and 0 <= getattr(model, name) < math.inf):
            raise DataError(f"{name}: must be 0 or above, got {shorten(getattr(model, name))}")
    if not (is_number(model.average_weights) and 0 <= model.average_weights <= 1):
        raise DataError(f"average_weights: must be in [0, 1], got {shorten(model.average_weights)}")
    if not (is_number(model.validation_fraction) and 0 < model.validation_fraction < 1):
        raise DataError(f"validation_fraction: must be in (0, 1), got {shorten(model.validation_fraction)}")
    if model.early_stopping and model.average_weights:
        raise DataError("average_weights: cannot be combined with early_stopping, which keeps the best model")
    get_algorithm(model.algorithm, 1, 1.0)
    thread_count(model.n_jobs)


def optimizer_of(model: XMLClassifier) -> Optimizer:
    """Return the optimizer of a classifier."""
    return get_optimizer(model.optimizer, weight_decay=model.weight_decay, clip_norm=model.clip_norm)


def is_count(value: object) -> bool:
    """Return whether a value is a positive integer."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value > 0)


def is_number(value: object) -> bool:
    """Return whether a value is a real number."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
