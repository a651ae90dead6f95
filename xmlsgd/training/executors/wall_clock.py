"""Executors whose steps take the time that they take: all but the simulated one."""

from __future__ import annotations

import time

from .base import Executor


class OnWallClock(Executor):
    """An executor by the wall clock, which `start` sets to zero at its end (`_start_clock`)."""

    def _start_clock(self) -> None:
        """Begin to count seconds."""
        self._started = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._started
