"""How far a run is, in rows and in seconds: by the rows its rate falls, the seconds are its records'."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..nn.schedules import Schedule
    from .executors.base import Executor


@dataclass
class Course:
    """How far a run of `n_rows` an epoch is: the rows it has done, and what its clock does not tell.

    before : seconds of earlier processes. paused : those in which it stood still.
    """

    schedule: Schedule
    n_rows: int
    rows: int = 0
    before: float = 0.0
    paused: float = 0.0

    def seconds(self, executor: Executor) -> float:
        """Return the seconds that the run has taken, all its processes together."""
        return self.before + executor.now() - self.paused

    @contextmanager
    def standing_still(self, executor: Executor) -> Iterator[None]:
        """Let what happens meanwhile not count."""
        begun = executor.now()
        yield
        self.paused += executor.now() - begun

    def factor(self, rows: int) -> float:
        """Return the factor of the rate for the next batch of `rows`, taken at its middle."""
        return self.schedule.factor(min((self.rows + rows / 2) / (self.n_rows * self.schedule.epochs), 1.0))
