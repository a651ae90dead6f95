"""Liveness timeouts: detect workers that are stopped or stuck, whose pipes stay open.

The report of a span is the worker's heartbeat. It is due within a multiple of the time that the slowest spans so far
would take.
"""

from __future__ import annotations

from ..messages import Report

# Chosen so that no worker that makes progress is taken for lost (docs/decisions/workers.md):
FACTOR = 10.0  # times the worker's own slowest span, or the slowest start of another worker
FIRST_SPAN_FACTOR = 100.0  # times the slowest span of other workers: a CPU may be that slow beside a GPU
MOST_SECONDS = 600.0  # to start, and for the very first span: cold caches and a busy disk may take minutes
LEAST_START_SECONDS = 60.0  # to start, once another worker has started
CHECKS = 10  # per minimum timeout


class Liveness:
    """Tracks which workers owe a message and which messages are overdue.

    Only time in which the coordinator listened counts, so that workers of a job that was suspended as a whole are not
    taken for lost.

    Parameters
    ----------
    timeout : float
        Minimum timeout in seconds, > 0.
    now : float
        The current time in seconds.
    """

    def __init__(self, timeout: float, now: float) -> None:
        self.timeout, self.interval = timeout, timeout / CHECKS
        self._checked, self._listened = now, 0.0
        self._due: dict[int, tuple[float, int]] = {}  # worker -> listened seconds when it began, rows of its span
        self._row_seconds: dict[int, float] = {}  # worker -> seconds per row of its slowest span
        self._slowest_start: float | None = None

    def tick(self, now: float) -> None:
        """Note the time; of the time since the last call, at most one interval counts as listened."""
        self._listened += min(now - self._checked, self.interval)
        self._checked = now

    def starts(self, w: int) -> None:
        """Expect worker `w` to become ready."""
        self._due[w] = self._listened, 0

    def works(self, w: int, rows: int) -> None:
        """Expect the report of a span of `rows` rows, > 0."""
        self._due[w] = self._listened, rows

    def heard(self, w: int, report: Report | None) -> None:
        """Note a report, or None from a worker that is ready."""
        since, _ = self._due.pop(w, (self._listened, 0))
        if report is None:
            self._row_seconds.pop(w, None)  # measured on the process that this one replaces
            self._slowest_start = max(self._slowest_start or 0.0, self._listened - since)
        else:
            self._row_seconds[w] = max(self._row_seconds.get(w, 0.0), report.seconds / report.rows)

    def lost(self, w: int) -> None:
        """Expect nothing more from worker `w`."""
        self._due.pop(w, None)

    def overdue(self) -> list[int]:
        """Return the workers whose message is overdue."""
        return [w for w, (since, rows) in self._due.items() if self._listened - since > self._limit(w, rows)]

    @property
    def start_timeout(self) -> float:
        """Seconds within which a worker has to start."""
        due = MOST_SECONDS
        if self._slowest_start is not None:
            due = min(max(FACTOR * self._slowest_start, LEAST_START_SECONDS), MOST_SECONDS)
        return max(due, self.timeout)

    def _limit(self, w: int, rows: int) -> float:
        """Return the seconds within which the report of `rows` rows is due; 0 rows for becoming ready."""
        if not rows:
            return self.start_timeout
        due = MOST_SECONDS
        if w in self._row_seconds:
            due = FACTOR * self._row_seconds[w] * rows
        elif self._row_seconds:  # others may have shown their speed while this worker was busy
            due = min(FIRST_SPAN_FACTOR * max(self._row_seconds.values()) * rows, MOST_SECONDS)
        return max(due, self.timeout)
