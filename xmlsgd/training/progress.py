"""Training progress: rows seen, which drive the learning-rate schedule, and elapsed seconds."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..nn.schedules import Schedule
    from .executors.base import Executor


@dataclass
class TrainingProgress:
    """Progress of a run of `n_rows` an epoch.

    rows : trained so far. before : seconds of earlier processes of the run. paused_seconds : those that do not count.
    """

    schedule: Schedule
    n_rows: int
    rows: int = 0
    before: float = 0.0
    paused_seconds: float = 0.0

    def seconds(self, executor: Executor) -> float:
        """Return the seconds that the run has taken, those of earlier processes included."""
        return self.before + executor.now() - self.paused_seconds

    @contextmanager
    def paused(self, executor: Executor) -> Iterator[None]:
        """Leave the seconds inside of the context out."""
        begun = executor.now()
        yield
        self.paused_seconds += executor.now() - begun

    def factor(self, at: float) -> float:
        """Return the factor of the learning rate after `at` rows of the run."""
        return self.schedule.factor(min(at / (self.n_rows * self.schedule.epochs), 1.0))
