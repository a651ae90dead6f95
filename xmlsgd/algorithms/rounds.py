"""Rounds: workers train their own replicas, then all meet and the replicas are merged.

The common part of model averaging, whatever opens and ends a round and whatever the merge does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ..errors import DataError
from ..training.merging import ParameterSlice
from ..training.messages import Report
from .base import Algorithm, Comm, tapered
from .combining import Combine, Work, mean
from .outer import Outer
from .throughput import Throughput

LEASE = 3  # batches of a message at most: for one alone, asking, getting and reporting take 2 to 3 % of its step
# Of what a worker will get in a round, by its pace, that it may get at once: with 3/4, and four batches a message, two
# points of the speeds are lost where devices stall (docs/decisions/workers.md).
CERTAIN = 0.5
BEGAN = "began"  # merge state: the model at which a worker began that was left out of a merge


@dataclass
class Rounds(Algorithm, ABC):
    """Counts what each worker has been given and has done in the round; a merge ends it.

    With a finite `straggler_timeout`, a worker whose batch takes more than so many times as long as usual is a
    straggler: the others merge without it. What it learns from then on, where the model was, takes part in the next
    merge as if it had been learned where the model is.
    """

    straggler_timeout = inf
    dynamic = False  # whether rows of a round go to whoever is free

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges."""
        super().__post_init__()
        if not self.straggler_timeout > 1:
            raise DataError(f"straggler_timeout must be above 1, got {self.straggler_timeout}")

    def outer_of(self, n_workers: int) -> Outer:
        """Return what moves the common model in a merge of so many replicas."""
        return Outer()

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the vectors of the outer optimizer; a worker that has been behind has one more."""
        return len(self.outer_of(n_workers).state_names)

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin the first round."""
        self.throughput = Throughput(self.straggler_timeout)
        self.behind: set[int] = set()  # left out of a merge, and in none since: they began at an earlier model
        self.newcomers: set[int] = set()  # joined in the middle of the round: their counts say nothing yet
        self.n_rows = n_rows
        self.size = dict.fromkeys(workers, self.batch)
        self.given = dict.fromkeys(workers, 0)  # rows, of the round
        self.work = {w: Work(0, 0, self.batch) for w in workers}

    @abstractmethod
    def open_rows(self, w: int) -> float:
        """Return the rows of the round that are left for worker `w`, or for whoever takes them if it is dynamic."""

    def left_of(self, rows: int, w: int) -> float:
        """Return what is left for worker `w` of a round of `rows` rows."""
        return rows - sum(self.given.values()) if self.dynamic else rows / len(self.given) - self.given[w]

    def goes_on(self, w: int) -> bool:
        """Return whether worker `w` gets another batch in this round."""
        return self.open_rows(w) > 0

    @abstractmethod
    def merge_all(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Merge the replicas of the workers in `work`, which says what each did since its last merge."""

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Merge the replicas of `members`, and let them begin a round."""
        self.leave_out_stragglers(comm)
        self.merge_all(comm, {w: self.work[w] for w in members})
        for w in members:
            self.given[w], self.work[w] = 0, Work(0, 0, self.size[w])
        self.behind -= set(members)
        self.newcomers -= set(members)

    def average(
        self, comm: Comm, work: Mapping[int, Work], weights: Mapping[int, float], combine: Combine = mean
    ) -> None:
        """Combine the replicas, move the common model by that, and let all begin there."""
        outer, behind = self.outer_of(len(work)), self.behind.intersection(work)

        def rule(params: ParameterSlice) -> None:
            for w in behind:
                params.replicas[w] += params.center - params.state(BEGAN, w)
            outer.apply(params, combine(params, weights, work))
            params.broadcast()

        comm.merge(rule, work, outer.memory)

    def leave_out_stragglers(self, comm: Comm) -> None:
        """Go on without those whose batch is overdue: what they were given belongs to the round that ends."""
        for w in self.throughput.overdue(self.situation.now):
            self.given[w] = 0
            if w not in self.behind:  # till now it had the model that the others had
                self.behind.add(w)
                comm.save_center(BEGAN, w)

    def batch_size(self, w: int) -> int:
        """Return the worker's size while the round is open for it."""
        return self.size[w] if self.goes_on(w) else 0

    def updates(self, w: int) -> int:
        """Return the batches of the next message: those that the worker will get in this round in any case."""
        rows = self.open_rows(w) * (CERTAIN * self.throughput.share(w, self.size) if self.dynamic else 1)
        return min(max(tapered(rows, self.situation.left_rows, len(self.size)) // self.size[w], 1), LEASE)

    def submitted(self, w: int, rows: int) -> None:
        """Count the rows given out, and note when they are late."""
        self.given[w] += rows
        self.throughput.begun(w, rows, self.situation.now)

    def finished(self, report: Report) -> None:
        """Count the work done, and how long it took."""
        w, done = report.worker, self.work[report.worker]
        self.throughput.finished(report)
        self.work[w] = Work(done.updates + report.updates, done.rows + report.rows, self.size[w])

    def left(self, w: int) -> None:
        """Forget a worker: its rows go to others."""
        del self.size[w], self.given[w], self.work[w]
        self.throughput.ended(w)
        self.behind.discard(w)
        self.newcomers.discard(w)

    def joined(self, w: int) -> None:
        """Take a new worker into the round, with the mean size of the others."""
        self.size[w] = round(sum(self.size.values()) / len(self.size)) if self.size else self.batch
        self.given[w], self.work[w] = 0, Work(0, 0, self.size[w])
        self.newcomers.add(w)

    def merge_due(self, busy: Collection[int]) -> Collection[int]:
        """Return all who are not busy, when none of them goes on and nobody is busy but the late."""
        ready = [w for w in self.size if w not in busy]
        if not any(self.given[w] for w in ready) or any(self.goes_on(w) for w in ready):
            return ()
        return () if self.throughput.waits_for(busy, self.situation.now) else ready

    def deadline(self) -> float | None:
        """Return when the busy will all be late, if all others wait for them."""
        idle, deadline = [w for w in self.size if w not in self.throughput.due], self.throughput.deadline()
        return deadline if deadline < inf and idle and not any(self.goes_on(w) for w in idle) else None

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return the batch sizes."""
        return {"batch": self.size}
