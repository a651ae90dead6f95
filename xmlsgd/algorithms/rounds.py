"""Rounds: workers train their own replicas, then all meet and the replicas are merged.

The common part of model averaging, whatever opens and ends a round and whatever the merge does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..records import Report
from .base import Algorithm, Comm
from .combining import Work


@dataclass
class Rounds(Algorithm, ABC):
    """Counts what each worker has been given and has done in the round; a merge ends it."""

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin the first round."""
        self.n_rows = n_rows
        self.size = dict.fromkeys(workers, self.batch)
        self.given = dict.fromkeys(workers, 0)  # rows, of the round
        self.work = {w: Work(0, 0, self.batch) for w in workers}

    @abstractmethod
    def goes_on(self, w: int) -> bool:
        """Return whether worker `w` gets another batch in this round."""

    @abstractmethod
    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Merge the replicas of `members` and call `begin_round`."""

    def batch_size(self, w: int) -> int:
        """Return the worker's size while the round is open for it."""
        return self.size[w] if self.goes_on(w) else 0

    def submitted(self, w: int, rows: int) -> None:
        """Count the rows given out."""
        self.given[w] += rows

    def finished(self, report: Report) -> None:
        """Count the work done."""
        w, done = report.worker, self.work[report.worker]
        self.work[w] = Work(done.updates + report.updates, done.rows + report.rows, self.size[w])

    def left(self, w: int) -> None:
        """Forget a worker: its rows go to others."""
        del self.size[w], self.given[w], self.work[w]

    def joined(self, w: int) -> None:
        """Take a new worker into the round, with the mean size of the others."""
        self.size[w] = round(sum(self.size.values()) / len(self.size)) if self.size else self.batch
        self.given[w], self.work[w] = 0, Work(0, 0, self.size[w])

    def merge_due(self, busy: Collection[int]) -> Collection[int]:
        """Return all workers when nobody is busy or goes on."""
        if busy or not any(self.given.values()) or any(self.goes_on(w) for w in self.size):
            return ()
        return list(self.size)

    def begin_round(self) -> None:
        """Begin to count anew."""
        self.given = dict.fromkeys(self.given, 0)
        self.work = {w: Work(0, 0, self.size[w]) for w in self.size}

    def notes(self) -> dict[str, object]:
        """Return the sizes of the workers."""
        return {"sizes": dict(self.size)}


def even_part(n_rows: int, wanted: int) -> int:
    """Return about `wanted` rows, such that rounds of so many divide an epoch into even parts."""
    return -(-n_rows // max(round(n_rows / wanted), 1))
