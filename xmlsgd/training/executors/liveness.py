"""How long a worker may say nothing before it counts as lost: a process that is stopped or stuck never ends its pipe.

The report of a step is its heartbeat. It is due within several times what the slowest rows so far would take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import DataError, shorten

if TYPE_CHECKING:
    from ..messages import Report

# Chosen so that no worker that goes on is taken for lost (docs/decisions/workers.md):
FACTOR = 10.0  # times the slowest pace that a worker has shown
FIRST = 100.0  # times the slowest pace that anybody has shown, for a first step: a CPU may be as slow beside a GPU
START = 600.0  # seconds to start, and for a first step beside nobody: cold caches and a busy disk take minutes at worst
STARTED = 60.0  # seconds to start, at least, where others have: FACTOR times as long as the slowest of them
LOOKS = 10  # within the shortest silence


class Silence:
    """Says who is silent for too long; `least` is the shortest such silence, in seconds, > 0, else `DataError`.

    Only time in which somebody looked counts, so that a job that was stopped as a whole finds its workers alive.
    """

    def __init__(self, least: float, now: float) -> None:
        if not isinstance(least, int | float) or not least > 0:
            raise DataError(f"silence must be above 0, got {shorten(least)}")
        self.least, self.slice = least, least / LOOKS
        self._looked, self._watched = now, 0.0
        # Who owes a message: since which second, of those watched, and for how many rows.
        self._owed: dict[int, tuple[float, int]] = {}
        self._pace: dict[int, float] = {}  # seconds a row, the slowest
        self._start: float | None = None  # seconds to start, the slowest; None while nobody has started

    def look(self, now: float) -> None:
        """Note the time; of what has passed since the last look at most a slice counts."""
        self._watched += min(now - self._looked, self.slice)
        self._looked = now

    def starts(self, w: int) -> None:
        """Expect worker `w` to become ready."""
        self._owed[w] = self._watched, 0

    def works(self, w: int, rows: int) -> None:
        """Expect the report of a step of `rows` rows, > 0."""
        self._owed[w] = self._watched, rows

    def heard(self, w: int, report: Report | None) -> None:
        """Note a message: None for a worker that is ready, whose pace is not known."""
        since, _ = self._owed.pop(w, (self._watched, 0))
        if report is None:
            self._pace.pop(w, None)
            self._start = max(self._start or 0.0, self._watched - since)
        else:
            self._pace[w] = max(self._pace.get(w, 0.0), report.seconds / report.rows)

    def gone(self, w: int) -> None:
        """Expect nothing more from worker `w`."""
        self._owed.pop(w, None)

    def overdue(self) -> list[int]:
        """Return the workers whose message should have come."""
        return [w for w, (since, rows) in self._owed.items() if self._watched - since > self._limit(w, rows)]

    @property
    def start(self) -> float:
        """Return the seconds within which a worker has to start."""
        due = START if self._start is None else min(max(FACTOR * self._start, STARTED), START)
        return max(due, self.least)

    def _limit(self, w: int, rows: int) -> float:
        """Return the seconds within which a message is due: the report of `rows` rows, or that of being ready for 0."""
        if not rows:
            return self.start
        if w in self._pace:
            due = FACTOR * self._pace[w] * rows
        elif self._pace:  # those of others, who may have shown theirs while this one was at work
            due = min(FIRST * max(self._pace.values()) * rows, START)
        else:
            due = START
        return max(due, self.least)
