"""The constructor's parameters: which values are allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from ..algorithms import check_algorithm
from ..algorithms.base import Algorithm
from ..devices.base import PRECISIONS
from ..errors import DataError, shorten, suggest
from ..kinds import FLOAT32_MAX, check_choice, is_count, is_number, is_whole
from ..losses import get_loss
from ..optimizers import Optimizer, get_optimizer
from ..schedules import SCHEDULES
from .placement import check_devices
from .threads import thread_count

if TYPE_CHECKING:
    from .classifier import XMLClassifier


MAX_SEED = 2**32 - 1
BLENDS = ("logistic", "boosted")


def check_parameters(model: XMLClassifier) -> None:
    """Raise `DataError` for a parameter outside its range."""
    sizes = model.hidden_layer_sizes
    is_list = isinstance(sizes, Sequence) or (isinstance(sizes, np.ndarray) and sizes.ndim == 1)
    if not is_list or len(sizes) == 0 or not all(is_count(size) for size in sizes):
        raise _refused(model, "hidden_layer_sizes", "one or more positive integers, as in (256,)")
    if not _is_auto(model.loss):
        get_loss(model.loss)
    optimizer_of(model)
    if not isinstance(model.learning_rate, str) or model.learning_rate not in SCHEDULES:
        refused = _refused(model, "learning_rate", f"one of {', '.join(SCHEDULES)}")
        near = suggest(model.learning_rate, SCHEDULES)
        raise DataError(f"{refused}{near or '; the rate itself is learning_rate_init (--lr)'}")
    rate = model.learning_rate_init
    if not _is_auto(rate) and not (is_amount(rate) and rate != 0):
        raise _refused(model, "learning_rate_init", "'auto' or above 0")
    for name in ("batch_size", "max_epochs"):
        if not _is_auto(getattr(model, name)) and not is_count(getattr(model, name)):
            raise _refused(model, name, "'auto' or a positive integer")
    if not (isinstance(model.negatives, str) and model.negatives in ("auto", "all")) and not is_count(model.negatives):
        raise _refused(model, "negatives", "'auto', 'all' or a positive integer")
    if not _is_auto(model.shortlist) and not is_count(model.shortlist) and not _is_zero(model.shortlist):
        raise _refused(model, "shortlist", "'auto', 0 or a positive integer")
    if not isinstance(model.blend, str) or model.blend not in BLENDS:
        refused = _refused(model, "blend", " or ".join(map(repr, BLENDS)))
        raise DataError(f"{refused}{suggest(model.blend, BLENDS)}")
    if not is_count(model.n_epochs_no_change):
        raise _refused(model, "n_epochs_no_change", "a positive integer")
    if not _is_auto(model.gradient_rounding) and not _is_share(model.gradient_rounding):
        raise _refused(model, "gradient_rounding", "'auto' or in [0, 1)")
    for name in ("warm_up", "input_dropout", "hidden_dropout"):
        if not _is_share(getattr(model, name)):
            raise _refused(model, name, "in [0, 1)")
    for name in ("weight_decay", "clip_norm", "tol"):
        if not is_amount(getattr(model, name)):
            raise _refused(model, name, "0 or above")
    if not (is_amount(model.average_weights) and model.average_weights <= 1):
        raise _refused(model, "average_weights", "in [0, 1]")
    if not (is_amount(model.validation_fraction) and 0 < model.validation_fraction < 1):
        raise _refused(model, "validation_fraction", "in (0, 1)")
    for name in ("early_stopping", "warm_start"):
        if not isinstance(getattr(model, name), bool | np.bool_):
            raise _refused(model, name, "True or False")
    if not isinstance(model.verbose, int | np.integer | np.bool_) or model.verbose < 0:
        raise _refused(model, "verbose", "0 or a positive integer")
    if model.early_stopping and model.average_weights:
        raise DataError("average_weights: cannot be combined with early_stopping, which keeps the best model")
    _check_algorithm(model)
    check_devices(model.devices)
    check_choice("precision", model.precision, PRECISIONS)
    thread_count(model.n_jobs)
    try:
        check_random_state(model.random_state)
    except ValueError:
        raise _refused(model, "random_state", f"None, an integer in [0, {MAX_SEED}] or a RandomState") from None


def _check_algorithm(model: XMLClassifier) -> None:
    """Raise `DataError` for what names or is no algorithm, and for numbers beside one that has its own."""
    if not isinstance(model.algorithm, str | Algorithm):
        raise _refused(model, "algorithm", "a name or an Algorithm")
    if isinstance(model.algorithm, str):
        check_algorithm(model.algorithm)
    else:
        for name, own in (("batch_size", model.algorithm.batch), ("learning_rate_init", model.algorithm.rate)):
            given = getattr(model, name)
            if not _is_auto(given) and given != own:
                raise DataError(f"{name}: is part of the algorithm, got {given} beside {model.algorithm}; leave it out")


def optimizer_of(model: XMLClassifier) -> Optimizer:
    """Return the optimizer of a classifier."""
    return get_optimizer(model.optimizer, weight_decay=model.weight_decay, clip_norm=model.clip_norm)


def is_amount(value: object) -> bool:
    """Return whether a value is a real number of at least 0 that float32 holds."""
    return is_number(value) and 0 <= float(value) <= FLOAT32_MAX  # type: ignore[arg-type]


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_share(value: Any) -> bool:
    return is_amount(value) and bool(value < 1)


def _is_zero(value: object) -> bool:
    return is_whole(value) and value == 0


def _refused(model: XMLClassifier, name: str, allowed: str) -> DataError:
    return DataError(f"{name}: must be {allowed}, got {shorten(getattr(model, name))}")
