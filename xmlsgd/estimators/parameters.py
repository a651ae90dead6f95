"""Check the parameters of the estimators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from ..algorithms import check_algorithm
from ..algorithms.base import Algorithm
from ..data.validation import FLOAT32_MAX, check_choice, is_integer, is_number, is_positive_integer
from ..data.vectorizer import TextVectorizer
from ..devices.base import PRECISIONS
from ..errors import DataError, shorten
from ..nn.losses import find_loss
from ..nn.optimizers import Optimizer, get_optimizer
from ..nn.samplers import find_sampler
from ..nn.schedules import SCHEDULES
from . import defaults
from .workers import parse_devices, thread_count

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from .classifier import XMLClassifier


MAX_SEED = 2**32 - 1


class Rule(NamedTuple):
    """The allowed values of a parameter: in words, and as a test."""

    allowed: str
    fits: Callable[[Any], bool]

    def or_words(self, *words: str) -> Rule:
        """Return a rule that also allows these words."""
        return Rule(
            f"{', '.join(map(repr, words))} or {self.allowed}", lambda value: _is(value, *words) or self.fits(value)
        )


def is_amount(value: object) -> bool:
    """Return whether a value is a real number of at least 0 within the range of float32."""
    return is_number(value) and 0 <= float(value) <= FLOAT32_MAX  # type: ignore[arg-type]


def is_auto(value: object) -> bool:
    """Return whether a parameter is "auto", without comparing an array element by element."""
    return _is(value, "auto")


def _is(value: object, *words: str) -> bool:
    return isinstance(value, str) and value in words


def _are_sizes(value: Any) -> bool:
    is_list = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return is_list and len(value) > 0 and all(is_positive_integer(size) for size in value)


COUNT = Rule("a positive integer", is_positive_integer)
SHARE = Rule("in [0, 1)", lambda value: is_amount(value) and value < 1)
AMOUNT = Rule("0 or above", is_amount)
FLAG = Rule("True or False", lambda value: isinstance(value, bool | np.bool_))
RULES = {
    "hidden_layer_sizes": Rule("one or more positive integers, as in (256,)", _are_sizes).or_words("auto"),
    "learning_rate_init": Rule("above 0", lambda value: is_amount(value) and value != 0).or_words("auto"),
    "batch_size": COUNT.or_words("auto"),
    "max_epochs": COUNT.or_words("auto"),
    "negatives": COUNT.or_words("auto", "all"),
    "candidates": Rule(
        "'auto', 0 or a positive integer", lambda value: _is(value, "auto") or (is_integer(value) and value >= 0)
    ),
    "n_epochs_no_change": COUNT,
    "gradient_rounding": SHARE.or_words("auto"),
    "warm_up": SHARE,
    "hidden_dropout": SHARE,
    "weight_decay": AMOUNT,
    "clip_norm": AMOUNT,
    "tol": AMOUNT,
    "validation_fraction": Rule("in (0, 1)", lambda value: is_amount(value) and 0 < value < 1),
    "early_stopping": FLAG,
    "vectorizer": Rule(
        "a TextVectorizer or None (put another one before the classifier in a Pipeline)",
        lambda value: value is None or isinstance(value, TextVectorizer),
    ),
    "warm_start": FLAG,
    "verbose": Rule("0 or 1", lambda value: isinstance(value, int | np.integer | np.bool_) and value in (0, 1)),
}  # parameters that name a part, such as a loss, are looked up instead (`_check_names`)


def check_parameters(model: XMLClassifier) -> None:
    """Raise `DataError` for a parameter outside its range."""
    for name, rule in RULES.items():
        if not rule.fits(getattr(model, name)):
            raise _refused(model, name, rule.allowed)
    _check_names(model)
    if model.vectorizer is not None:
        model.vectorizer.check_options()
    _check_algorithm(model)
    parse_devices(model.devices)  # the devices need not exist here, where a model may only be loaded or estimated
    check_choice("precision", model.precision, PRECISIONS)
    thread_count(model.n_jobs)
    random_state_of(model)


def _check_names(model: XMLClassifier) -> None:
    """Raise `DataError` for an unknown loss, sampler, optimizer or schedule."""
    if not is_auto(model.loss):
        find_loss(model.loss)
    if not is_auto(model.sampler):
        find_sampler(model.sampler)
        _check_negatives(model.sampler, model.negatives)
    optimizer_of(model, is_base_model=False)
    rate = "; the rate itself is learning_rate_init (--lr)"
    check_choice("learning_rate", model.learning_rate, SCHEDULES, hint=rate)


def _check_negatives(sampler: str, negatives: int | str) -> None:
    """Raise `DataError` for a number of negatives if the sampler draws none, and for "all" if it draws some."""
    if is_auto(negatives):
        return
    draws, has_number = sampler != "all", not _is(negatives, "all")
    if draws != has_number:
        wanted = "a number or 'auto'" if draws else "'all' or 'auto'"
        raise DataError(f"negatives: must be {wanted} with sampler={sampler!r}, got {negatives!r}")


def _check_algorithm(model: XMLClassifier) -> None:
    """Raise `DataError` for an unknown algorithm, and for parameters that contradict those of an `Algorithm`."""
    check_algorithm(model.algorithm)
    if isinstance(model.algorithm, Algorithm):
        for name, own in (("batch_size", model.algorithm.batch), ("learning_rate_init", model.algorithm.learning_rate)):
            given = getattr(model, name)
            if not is_auto(given) and given != own:
                raise DataError(f"{name}: is part of the algorithm, got {given} beside {model.algorithm}; leave it out")


def random_state_of(model: BaseEstimator) -> np.random.RandomState:
    """Return the generator of an estimator's `random_state`."""
    try:
        return check_random_state(model.random_state)
    except ValueError:
        raise _refused(model, "random_state", f"None, an integer in [0, {MAX_SEED}] or a RandomState") from None


def optimizer_of(parameters: XMLClassifier, is_base_model: bool) -> Optimizer:
    """Return the optimizer of these parameters; is_base_model : whether its network is one of several."""
    optimizer = defaults.auto_optimizer(is_base_model) if is_auto(parameters.optimizer) else parameters.optimizer
    return get_optimizer(optimizer, weight_decay=parameters.weight_decay, clip_norm=parameters.clip_norm)


def _refused(model: BaseEstimator, name: str, allowed: str) -> DataError:
    return DataError(f"{name}: must be {allowed}, got {shorten(getattr(model, name))}")
