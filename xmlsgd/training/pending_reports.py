"""Reports whose losses a GPU has yet to compute: they are read some steps later, so that no step waits for the GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from .messages import PendingLoss, Report

PENDING_STEPS = 4  # that a GPU may be behind the host, which so never waits for the step that the GPU is at


class PendingReports:
    """A queue of reports: those with a `PendingLoss` come out `PENDING_STEPS` later, all others at once, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence[Report]] = deque()

    def add(self, reports: Sequence[Report]) -> Iterator[Sequence[Report]]:
        """Add reports that belong together; yield those whose losses can be read."""
        self._waiting.append(reports)
        pending = any(isinstance(report.loss, PendingLoss) for report in reports)
        while len(self._waiting) > (PENDING_STEPS if pending else 0):
            yield self._waiting.popleft()

    def rest(self) -> Iterator[Sequence[Report]]:
        """Yield all that are left; reading their losses waits for the GPU."""
        while self._waiting:
            yield self._waiting.popleft()
