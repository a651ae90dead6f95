"""Throughput of workers: who is a straggler, and who has time for another batch before the others are done."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from ..training.messages import Report

# Weight of the last batch in a worker's seconds a row. With 0.1 to 1 the share of the devices' speeds that local SGD
# has use of is 99.7 % on S1, 92.3 on S2, 91.2 on S3, 90.9 to 91.9 on S5 and, with stalls, 89.3 to 91.3 on S7.
NEWEST = 0.3
SHORTEST = 1e-9  # seconds of a batch: without features, one may take none on the simulated clock


class Throughput:
    """Seconds a row of each worker, and the deadlines of the busy ones.

    straggler_timeout : times its usual duration that a batch may take, > 1; then its worker is a straggler, and nobody
    waits for it until it is done. usual : seconds a row, by worker, of those that have done a batch. ends, due : by
    busy worker, the second in which its batch should be done, and in which it is overdue. stragglers : workers whose
    batch is overdue.
    """

    def __init__(self, straggler_timeout: float) -> None:
        self.straggler_timeout = straggler_timeout
        self.usual: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.due: dict[int, float] = {}
        self.stragglers: set[int] = set()

    def begun(self, w: int, rows: int, now: float) -> None:
        """Note that a worker has got a batch."""
        seconds = self.usual[w] * rows if w in self.usual else inf
        self.ends[w], self.due[w] = now + seconds, now + self.straggler_timeout * seconds

    def finished(self, report: Report) -> None:
        """Note that a batch is done, and how long it took."""
        w = report.worker
        self.usual[w] = moving_average(self.usual.get(w), max(report.seconds, SHORTEST) / report.rows)
        self.ended(w)

    def ended(self, w: int) -> None:
        """Note that a worker is not busy any more."""
        self.ends.pop(w, None)
        self.due.pop(w, None)
        self.stragglers.discard(w)

    def overdue(self, now: float) -> list[int]:
        """Return the workers whose batch is overdue; they are stragglers from now on."""
        found = [w for w, due in self.due.items() if due <= now]
        self.stragglers.update(found)
        return found

    def any_in_time(self, busy: Collection[int], now: float) -> bool:
        """Return whether one of the busy workers is not overdue."""
        return any(now < self.due[w] for w in busy if w not in self.stragglers)

    def deadline(self) -> float:
        """Return when the last busy worker in time becomes a straggler, infinity if unknown or none is busy."""
        return max((due for w, due in self.due.items() if w not in self.stragglers), default=inf)

    def has_time(self, w: int, rows: int, now: float) -> bool:
        """Return whether a worker would be done with so many rows before a batch for which all wait."""
        if w not in self.usual:
            return False
        done = now + self.usual[w] * rows
        return any(done <= end < inf for v, end in self.ends.items() if v not in self.stragglers)

    def share(self, w: int, workers: Collection[int]) -> float:
        """Return a worker's share of the throughput of all, 0 until that of each is known."""
        if any(v not in self.usual for v in workers):
            return 0.0
        return 1 / (self.usual[w] * sum(1 / self.usual[v] for v in workers))


def moving_average(before: float | None, new: float, newest: float = NEWEST) -> float:
    """Return the exponential moving average after a measurement of weight `newest`; `before` is None for the first."""
    return new if before is None else before + newest * (new - before)
