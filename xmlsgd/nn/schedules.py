"""Schedules: the length of a run, and its learning rate as a function of the share of the run that is done.

In the warm-up, the rate rises linearly from 0 to its peak, which keeps the first steps of Adam small, as its estimates
are still bad. An entry of `SCHEDULES` gives the rate for the rest of the run: it maps the share of this rest that is
done, in [0, 1], to a factor of the peak rate, which is finite, at least 0, and 1 at the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import DataError, shorten

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "inverse_sqrt": lambda done: 1.0 / math.sqrt(1.0 + 99.0 * done),  # falls to a tenth
}


@dataclass(frozen=True)
class Schedule:
    """The number of epochs of a run, and its learning rate.

    Parameters
    ----------
    epochs : int
        Passes over the rows, at least 1.
    kind : {"linear", "cosine", "constant", "inverse_sqrt"}
        How the rate falls after the warm-up. "cosine" with a warm-up of 0.3 is a one-cycle rate (Smith 2018).
    warm_up : float
        Share of all rows, in [0, 1), over which the rate rises first.

    Raises
    ------
    DataError
        For an unknown kind, and for numbers out of range.
    """

    epochs: int
    kind: str = "linear"
    warm_up: float = 0.02

    def __post_init__(self) -> None:
        """Raise `DataError` for an unknown kind, and for numbers out of range."""
        from ..data.validation import check_choice, is_number, is_positive_integer  # here: help needs no NumPy

        check_choice("learning_rate", self.kind, SCHEDULES)
        if not is_positive_integer(self.epochs):
            raise DataError(f"epochs: must be a positive integer, got {shorten(self.epochs)}")
        if not (is_number(self.warm_up) and 0 <= self.warm_up < 1):
            raise DataError(f"warm_up: must be in [0, 1), got {shorten(self.warm_up)}")

    def factor(self, progress: float) -> float:
        """Return the factor of the peak rate; progress : share of all rows of the run that are done."""
        if progress < self.warm_up:
            return progress / self.warm_up
        return SCHEDULES[self.kind](min((progress - self.warm_up) / (1.0 - self.warm_up), 1.0))
