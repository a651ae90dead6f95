"""When an index of the labels is made anew, and checks of the samplers that have one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from xmlsgd.data.validation import check_fields
from xmlsgd.errors import DataError, shorten


@dataclass(frozen=True)
class Refresh:
    """Refresh number t, from 1, comes after sum_{i < t} first e^(growth i) batches (Chen et al. 2020, section 4.2).

    An index of the labels is made anew often in the beginning, when weights move fast, ever more seldom later.
    first : batches before the first one, at least 1. growth : at least 0.
    """

    first: int = 50
    growth: float = 0.1

    def __post_init__(self) -> None:
        """Raise `DataError` for what is no number, and numbers outside their range."""
        check_fields(self)
        if not self.first >= 1 or not 0 <= self.growth < math.inf:
            raise DataError(
                f"refresh: first must be at least 1 and growth at least 0, got {shorten((self.first, self.growth))}"
            )

    def batches(self, t: int) -> int:
        """Return how many batches lie before refresh number t, rounded."""
        rate = math.expm1(self.growth)
        return round(self.first * (math.expm1(self.growth * t) / rate if rate else t))


class Turns:
    """Counts the batches of a learner and says before which of them a refresh is due; before the first one is."""

    def __init__(self, refresh: Refresh) -> None:
        self._refresh, self._batches, self._refreshes = refresh, 0, 0

    def due(self) -> bool:
        """Count a batch; return whether a refresh goes before it."""
        due = self._batches >= self._refresh.batches(self._refreshes)
        self._batches += 1
        self._refreshes += due
        return due


def check_least(**numbers: tuple[float, float]) -> None:
    """Raise `DataError` for the first number that is below the least beside it."""
    for name, (number, least) in numbers.items():
        if not number >= least:
            raise DataError(f"{name} must be at least {least}, got {shorten(number)}")
