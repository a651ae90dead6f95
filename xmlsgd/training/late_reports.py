"""Reports whose losses are read some steps late, so that the host never waits for the step that a GPU is at."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .messages import LateLoss

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .messages import Report

LATE_STEPS = 4  # that a GPU may be behind the host


class LateReports:
    """A queue of reports: those with a `LateLoss` come out `LATE_STEPS` later, all others at once, in their order."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence[Report]] = deque()

    def add(self, reports: Sequence[Report]) -> Iterator[Sequence[Report]]:
        """Add reports that belong together; yield those whose losses can be read."""
        self._waiting.append(reports)
        late = any(isinstance(report.loss, LateLoss) for report in reports)
        while len(self._waiting) > (LATE_STEPS if late else 0):
            yield self._waiting.popleft()

    def rest(self) -> Iterator[Sequence[Report]]:
        """Yield all that are left; reading their losses waits for the GPU."""
        while self._waiting:
            yield self._waiting.popleft()
