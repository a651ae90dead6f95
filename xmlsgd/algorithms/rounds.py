"""Rounds: workers train their own replicas, then the replicas are merged.

The engine's part of model averaging: who gets rows in a round, when it ends, and what becomes of stragglers and of
workers that leave or join. What opens a round and what the merge does is the algorithm's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple

from ..training.merging import Comm, MergeRule, ParameterSlice
from ..training.messages import Report
from .throughput import Throughput

# A span is at most this fraction of an equal share of the rows left in an epoch. On the simulated clock 1 to 8 keep
# devices equally busy (Hogwild on S2, S4 and S7 within 0.6 %, local SGD within 2); 16 takes twice the messages.
TAPER = 4
LEASE = 3  # batches of a message at most: for one alone, asking, getting and reporting take 2 to 3 % of its step
# Of what a worker will get in a round, by its throughput, the share that it may get at once: with 3/4, and four batches
# a message, two points of the speeds are lost where devices stall (docs/decisions/workers.md).
CERTAIN = 0.5
BEGAN = "began"  # merge state: the model at which a worker began that was left out of a merge


class Work(NamedTuple):
    """What a worker did since its last merge: its updates, its rows, and the rows of its batches."""

    updates: int
    rows: int
    size: int


class Rounds(ABC):
    """Counts what each worker has been given and has done in the round; a merge ends it.

    A class of algorithms derives from it before `Algorithm`, and defines `open_rows` and `merge_replicas`.

    A straggler, a worker whose batch takes more than `straggler_timeout` times as long as usual, is left out of the
    merge of the others. What it learns from then on, where the model was, takes part in the next merge as if it had
    been learned where the model is.

    batch : rows of a batch, the largest where sizes differ. dynamic : whether rows of a round go to whoever is free.
    size, given, work : by worker, the rows of its batches, its rows of this round, what it did since its last merge.
    """

    batch: int
    straggler_timeout = inf
    dynamic = False

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin the first round."""
        self.throughput = Throughput(self.straggler_timeout)
        self.behind: set[int] = set()  # left out of a merge, and in none since: they began at an earlier model
        self.newcomers: set[int] = set()  # joined in the middle of the round: their counts say nothing yet
        self.n_rows = n_rows
        self.size = dict.fromkeys(workers, self.batch)
        self.given = dict.fromkeys(workers, 0)
        self.work = {w: Work(0, 0, self.batch) for w in workers}

    @abstractmethod
    def open_rows(self, w: int) -> float:
        """Return the rows of the round that are left for worker `w`, or for whoever takes them if it is dynamic."""

    @abstractmethod
    def merge_replicas(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Merge the replicas of the workers in `work`, which says what each did since its last merge."""

    def rest_of_round(self, rows: int, w: int) -> float:
        """Return what is left of a round of `rows` rows: of all if it is dynamic, else of worker `w`'s equal part."""
        if self.dynamic:
            return rows - sum(self.given.values())
        return rows / len(self.given) - self.given[w]

    def goes_on(self, w: int, now: float) -> bool:
        """Return whether worker `w` gets another batch in this round."""
        return self.open_rows(w) > 0

    def batch_size(self, w: int, now: float) -> int:
        """Return the worker's size while the round is open for it."""
        return self.size[w] if self.goes_on(w, now) else 0

    def updates(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return the batches of the next message: those that the worker will get in this round in any case."""
        certain = self.open_rows(w)
        if self.dynamic:
            certain *= CERTAIN * self.throughput.share(w, self.size)
        batches = tapered(certain, rows_left, len(self.size)) // self.size[w]
        return min(max(batches, 1), LEASE)

    def submitted(self, w: int, rows: int, now: float) -> None:
        """Count the rows given out, and note when they are overdue."""
        self.given[w] += rows
        self.throughput.begun(w, rows, now)

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

    def deadline(self, now: float) -> float | None:
        """Return when the busy will all be stragglers, if all others wait for them."""
        idle, deadline = [w for w in self.size if w not in self.throughput.due], self.throughput.deadline()
        return deadline if deadline < inf and idle and not any(self.goes_on(w, now) for w in idle) else None

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return all idle workers, when none of them goes on and only stragglers are busy."""
        ready = [w for w in self.size if w not in busy]
        if not any(self.given[w] for w in ready) or any(self.goes_on(w, now) for w in ready):
            return ()
        return () if self.throughput.any_in_time(busy, now) else ready

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Merge the replicas of `members`, and let them begin a round."""
        self._leave_out_stragglers(comm)
        self.merge_replicas(comm, {w: self.work[w] for w in members})
        for w in members:
            self.given[w], self.work[w] = 0, Work(0, 0, self.size[w])
        self.behind -= set(members)
        self.newcomers -= set(members)

    def merge_into_center(self, comm: Comm, work: Mapping[int, Work], rule: MergeRule, fade_merges: int = 0) -> None:
        """Let `rule` move the center by the replicas of the workers in `work`, then copy the center to all of these."""
        behind = self.behind.intersection(work)

        def from_one_center(params: ParameterSlice) -> None:
            for w in behind:
                params.replicas[w] += params.center - params.state(BEGAN, w)
            rule(params)
            params.broadcast()

        comm.merge(from_one_center, work, fade_merges)

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return the batch sizes."""
        return {"batch": self.size}

    def _leave_out_stragglers(self, comm: Comm) -> None:
        """Go on without the stragglers: what they were given belongs to the round that ends."""
        for w in self.throughput.overdue(comm.now()):
            self.given[w] = 0
            if w not in self.behind:  # till now it had the model that the others had
                self.behind.add(w)
                comm.save_center(BEGAN, w)


def tapered(rows: float, rows_left: float, n_workers: int) -> int:
    """Return the rows of a span: fewer than `rows` where so few are left in the epoch that others would wait."""
    if n_workers == 1:
        return int(rows)
    return int(min(rows, rows_left / (TAPER * n_workers)))


def even_part(n_rows: int, wanted: int) -> int:
    """Return about `wanted` rows, such that rounds of so many divide an epoch into even parts."""
    return -(-n_rows // max(round(n_rows / wanted), 1))
