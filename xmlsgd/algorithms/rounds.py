"""Rounds: workers train their own replicas, then the replicas are merged.

The engine's part of model averaging: who gets rows in a round, when it ends, and what becomes of stragglers and of
workers that leave or join. What opens a round and what the merge does is the algorithm's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ..data.validation import at_least
from ..training.merging import Comm, MergeRule, ParameterSlice
from ..training.messages import Report

# A span is at most this fraction of an equal share of the rows left in an epoch. On the simulated clock 1 to 8 keep
# devices equally busy (Hogwild on S2, S4 and S7 within 0.6 %, local SGD within 2); 16 takes twice the messages.
TAPER = 4
LEASE = 3  # batches of a message at most: for one alone, asking, getting and reporting take 2 to 3 % of its step
# Of what a worker will get in a round, by its throughput, the share that it may get at once: with 3/4, and four batches
# a message, two points of the speeds are lost where devices stall (docs/decisions/workers.md).
CERTAIN = 0.5
# Weight of the last batch in a worker's seconds a row. With 0.1 to 1 the share of the devices' speeds that local SGD
# has use of is 99.7 % on S1, 92.3 on S2, 91.2 on S3, 90.9 to 91.9 on S5 and, with stalls, 89.3 to 91.3 on S7.
NEWEST = 0.3
SHORTEST = 1e-9  # seconds of a batch: without features, one may take none on the simulated clock
BATCHES = 100  # in a mega-batch (Adaptive SGD, 2021)
BEGAN = "began"  # merge state: the model at which a worker began that was left out of a merge


class Work(NamedTuple):
    """What a worker did since its last merge: its updates, its rows, and the rows of its batches."""

    updates: int
    rows: int
    size: int


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


@dataclass
class MegaBatches(Rounds):
    """Rounds of `mega_batch` rows for all workers together.

    A class of algorithms derives from it before `Algorithm`, and defines `merge_replicas`.
    """

    mega_batch: int | None = at_least(None, 1)

    @property
    def mega_rows(self) -> int:
        """Return the rows of a mega-batch: at least a batch for everyone, by default an even part of an epoch."""
        parts = max(round(self.n_rows / (BATCHES * self.batch)), 1)
        return max(self.mega_batch or -(-self.n_rows // parts), sum(self.size.values()))

    def open_rows(self, w: int) -> float:
        """Return what is left of the mega-batch: of all if it is dynamic, else of the worker's equal part."""
        return self.rest_of_round(self.mega_rows, w)


@dataclass
class UpdateRounds(Rounds):
    """Rounds of `sync_every` updates of each worker.

    A class of algorithms derives from it before `Algorithm`, and defines `merge_replicas`.
    """

    sync_every: int = at_least(16, 1)

    def open_rows(self, w: int) -> float:
        """Return the rows of the updates that a worker has left in the round."""
        return self.sync_every * self.batch - self.given[w]


def tapered(rows: float, rows_left: float, n_workers: int) -> int:
    """Return the rows of a span: fewer than `rows` where so few are left in the epoch that others would wait."""
    if n_workers == 1:
        return int(rows)
    return int(min(rows, rows_left / (TAPER * n_workers)))


def moving_average(before: float | None, new: float, newest: float = NEWEST) -> float:
    """Return the exponential moving average after a measurement of weight `newest`; `before` is None for the first."""
    return new if before is None else before + newest * (new - before)
