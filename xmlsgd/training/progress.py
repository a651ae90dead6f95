"""Progress of a run: rows seen (which drive the learning-rate schedule), elapsed seconds, training position."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..data.validation import Checked, is_number
from ..errors import DataError, shorten
from ..nn.schedules import Schedule
from .executors.base import Executor
from .router import Bounds


@dataclass
class TrainingProgress:
    """Progress of a run.

    n_rows : rows of an epoch. rows : rows trained so far. seconds_before : seconds of the run before it was resumed.
    """

    schedule: Schedule
    n_rows: int
    rows: int = 0
    seconds_before: float = 0.0

    def seconds(self, executor: Executor) -> float:
        """Return the seconds that the run has taken, including those before it was resumed."""
        return self.seconds_before + executor.now()

    def factor(self, at: float) -> float:
        """Return the factor of the learning rate after `at` rows of the run; `DataError` if it is unusable."""
        total = self.n_rows * self.schedule.epochs
        factor = self.schedule.factor(min(at / total, 1.0))
        if not (is_number(factor) and 0 <= factor < math.inf):
            schedule = f"{type(self.schedule).__name__} {self.schedule.kind!r}"
            got = f"{shorten(factor)} at row {at:,.0f} of {total:,}"
            raise DataError(f"{schedule}: its factor must be finite and at least 0, got {got}")
        return factor


@dataclass(frozen=True)
class TrainingPosition(Checked):
    """The position from which a run continues; the defaults are its start.

    Attributes
    ----------
    epoch : int
        The current epoch of this run, from 0.
    at : int
        Rows of the epoch that the router has handed out.
    returned : tuple of (int, int)
        Spans of these rows that were given back.
    loss : float
        Sum of the losses of the rows of the epoch so far.
    rows : int
        Rows trained so far in all epochs.
    seconds : float
        Seconds of training so far.
    ended : bool
        Whether training is complete.
    """

    epoch: int = 0
    at: int = 0
    returned: tuple[Bounds, ...] = ()
    loss: float = 0.0
    rows: int = 0
    seconds: float = 0.0
    ended: bool = False

    def fits(self, epochs: int, n_rows: int) -> bool:
        """Return whether this is a possible position of a run of `epochs` epochs of `n_rows` rows."""
        ends = [0, *(end for span in sorted(self.returned) for end in span), self.at, n_rows]
        spans_fit = sorted(ends) == ends and all(start < stop for start, stop in self.returned)
        epoch_fits = 0 <= self.epoch <= epochs and (self.ended or self.epoch < epochs)
        return spans_fit and epoch_fits and 0 <= self.seconds < math.inf and 0 <= self.rows <= epochs * n_rows
