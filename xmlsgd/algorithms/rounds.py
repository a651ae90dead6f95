"""Rounds: workers train replicas, then the replicas are merged.

The part that all model-averaging algorithms share: which worker gets rows in a round, when the round ends, and how
stragglers and workers that leave or join are treated. An algorithm defines how many rows a round has, and the merge.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from ..data.validation import at_least
from ..training.merging import Comm, MergeRule, ParameterSlice
from ..training.messages import Report
from .base import Algorithm

# A span has at most 1/TAPER of an equal share of the rows left in an epoch. On the simulated clock 1 to 8 keep devices
# equally busy (Hogwild on S2, S4 and S7 within 0.6 %, local SGD within 2); 16 takes twice the messages.
TAPER = 4
MOST_UPDATES_PER_SPAN = 3  # with one, messages would take 2 to 3 % of the time of a span
# A worker may get at once this share of the rows that it will probably get in the round, by its throughput. With 3/4,
# and four batches a span, the scheduling efficiency falls by two points if devices stall (docs/decisions/workers.md).
SHARE_AT_ONCE = 0.5
# Weight of the last span in a worker's seconds per row. With 0.1 to 1 the scheduling efficiency of local SGD is 99.7 %
# on S1, 92.3 on S2, 91.2 on S3, 90.9 to 91.9 on S5 and, with stalls, 89.3 to 91.3 on S7.
NEWEST = 0.3
SHORTEST = 1e-9  # least seconds of a span: on the simulated clock, one without features may take none
MEGA_BATCH = 100  # in batches (Adaptive SGD, 2021)
LEAST_MERGES = 4  # of an epoch, by default: with one or two, P@1 is 1 to 11 points lower (docs/decisions/workers.md)
BEGAN = "began"  # merge state of a worker that was left out of a merge: the center from which its replica began


class LocalWork(NamedTuple):
    """The work of a worker since its last merge: number of updates, rows, and the size of its batches."""

    updates: int
    rows: int
    size: int


class Throughput:
    """Throughput of the workers, and the stragglers among them.

    Attributes
    ----------
    straggler_timeout : float
        A span that takes longer than this multiple of its usual duration makes its worker a straggler, for which
        nobody waits, until the span is done; > 1.
    row_seconds : dict of int to float
        Seconds per row of each worker that has done a span, a moving average.
    ends, due : dict of int to float
        By busy worker, the second at which its span should be done, and the second at which it becomes a straggler.
    """

    def __init__(self, straggler_timeout: float) -> None:
        self.straggler_timeout = straggler_timeout
        self.row_seconds: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.due: dict[int, float] = {}

    def begun(self, w: int, rows: int, now: float) -> None:
        """Note that worker `w` was given a span of `rows` rows at second `now`."""
        seconds = self.row_seconds[w] * rows if w in self.row_seconds else inf
        self.ends[w], self.due[w] = now + seconds, now + self.straggler_timeout * seconds

    def finished(self, report: Report) -> None:
        """Note that a span is done, and its duration."""
        w = report.worker
        self.row_seconds[w] = moving_average(self.row_seconds.get(w), max(report.seconds, SHORTEST) / report.rows)
        self.ended(w)

    def ended(self, w: int) -> None:
        """Note that worker `w` is no longer busy."""
        self.ends.pop(w, None)
        self.due.pop(w, None)

    def stragglers(self, now: float) -> set[int]:
        """Return the stragglers at second `now`."""
        return {w for w, due in self.due.items() if due <= now}

    def deadline(self, now: float) -> float:
        """Return the second at which the last busy worker becomes a straggler; inf if all are, or if it is unknown."""
        return max((due for due in self.due.values() if due > now), default=inf)

    def has_time(self, w: int, rows: int, now: float) -> bool:
        """Return whether worker `w` would finish `rows` rows before a busy worker should be done."""
        if w not in self.row_seconds:
            return False
        done = now + self.row_seconds[w] * rows
        return any(done <= end < inf for end in self.ends.values())

    def others_are_sooner(self, w: int, rows: float, size: Mapping[int, int], now: float) -> bool:
        """Return whether other workers would train all of `rows` before worker `w` could train one batch.

        size : the rows of a batch, by worker. Stragglers train none. With a `straggler_timeout` of inf, where all wait
        for the slowest in any case, the answer is no.
        """
        if w not in self.row_seconds or self.straggler_timeout == inf:
            return False
        seconds, could = self.row_seconds[w] * size[w], 0
        for v in size.keys() & self.row_seconds.keys() - self.stragglers(now) - {w}:
            idle = seconds - max(self.ends.get(v, now) - now, 0.0)
            batches = ceil(idle / (self.row_seconds[v] * size[v])) - 1  # those that end before, not with it
            could += max(batches, 0) * size[v]
        return could >= rows

    def share(self, w: int, workers: Collection[int]) -> float:
        """Return the share of worker `w` in the throughput of `workers`; 0 if one of theirs is unknown."""
        if any(v not in self.row_seconds for v in workers):
            return 0.0
        return 1 / (self.row_seconds[w] * sum(1 / self.row_seconds[v] for v in workers))


class Rounds(Algorithm):
    """Base class of algorithms that train in rounds: it counts the rows of each worker in a round, which a merge ends.

    An algorithm defines `merge_replicas` and, unless every worker has `sync_every` updates, `round_rows`.

    A straggler (`Throughput`) is left out of the merge of the others. Its replica then differs from the center from
    which it began by what it has learned; the next merge adds this difference to the new center.

    Attributes
    ----------
    dynamic : bool
        Whether free workers take the next rows of a round; otherwise each has an equal part.
    sync_every : int
        Batches of each worker in a round.
    size : dict of int to int
        By worker, the rows of its batches.
    given : dict of int to int
        By worker, the rows that it was given in this round.
    work : dict of int to LocalWork
        By worker, its work since its last merge.
    """

    straggler_timeout = inf
    dynamic = False
    sync_every = 1

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin the first round."""
        self.throughput = Throughput(self.straggler_timeout)
        self.behind: set[int] = set()  # workers that were left out of the last merge and began from an earlier center
        self.newcomers: set[int] = set()  # workers that joined during the round, so that their counts say little
        self.n_rows = n_rows
        self.size = dict.fromkeys(workers, self.batch)
        self.given = dict.fromkeys(workers, 0)
        self.work = {w: LocalWork(0, 0, self.batch) for w in workers}

    @property
    def round_rows(self) -> int:
        """Return the rows of a round, of all workers together."""
        return self.sync_every * self.batch * len(self.size)

    @abstractmethod
    def merge_replicas(self, comm: Comm, work: Mapping[int, LocalWork]) -> None:
        """Merge the replicas of the workers in `work`, given their work since their last merge."""

    def open_rows(self, w: int) -> float:
        """Return the rows left of the round: of all if `dynamic`, else of the equal part of worker `w`."""
        if self.dynamic:
            return self.round_rows - sum(self.given.values())
        return self.round_rows / len(self.given) - self.given[w]

    def goes_on(self, w: int, now: float) -> bool:
        """Return whether worker `w` gets another batch in this round."""
        return self.open_rows(w) > 0

    def batch_size(self, w: int, now: float) -> int:
        """Return the batch size of the worker, or 0 if it has to wait for the merge."""
        return self.size[w] if self.goes_on(w, now) else 0

    def updates_per_span(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return only as many updates as the worker would make in this round anyway."""
        certain = self.open_rows(w)
        if self.dynamic:
            certain *= SHARE_AT_ONCE * self.throughput.share(w, self.size)
        updates = tapered(certain, rows_left, len(self.size)) // self.size[w]
        return min(max(updates, 1), MOST_UPDATES_PER_SPAN)

    def submitted(self, w: int, rows: int, now: float) -> None:
        """Count the rows handed out, and note when they become overdue."""
        self.given[w] += rows
        self.throughput.begun(w, rows, now)

    def finished(self, report: Report) -> None:
        """Count the finished work, and note its duration."""
        w, done = report.worker, self.work[report.worker]
        self.throughput.finished(report)
        self.work[w] = LocalWork(done.updates + report.updates, done.rows + report.rows, self.size[w])

    def worker_left(self, w: int) -> None:
        """Forget a worker, whose rows go to others."""
        del self.size[w], self.given[w], self.work[w]
        self.throughput.ended(w)
        self.behind.discard(w)
        self.newcomers.discard(w)

    def worker_joined(self, w: int) -> None:
        """Add a worker to the round, with the mean batch size of the others."""
        self.size[w] = round(sum(self.size.values()) / len(self.size)) if self.size else self.batch
        self.given[w], self.work[w] = 0, LocalWork(0, 0, self.size[w])
        self.newcomers.add(w)

    def deadline(self, now: float) -> float | None:
        """Return the second at which all busy workers will be stragglers, if the idle ones wait for them."""
        idle, deadline = [w for w in self.size if w not in self.throughput.due], self.throughput.deadline(now)
        return deadline if deadline < inf and idle and not any(self.goes_on(w, now) for w in idle) else None

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return all idle workers if none of them has rows left and only stragglers are busy; else none."""
        ready = [w for w in self.size if w not in busy]
        if not any(self.given[w] for w in ready) or any(self.goes_on(w, now) for w in ready):
            return ()
        return ready if self.throughput.stragglers(now) >= set(busy) else ()

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Merge the replicas of `members`, which then begin a new round."""
        self._leave_out_stragglers(comm)
        self.merge_replicas(comm, {w: self.work[w] for w in members})
        for w in members:
            self.given[w], self.work[w] = 0, LocalWork(0, 0, self.size[w])
        self.behind -= set(members)
        self.newcomers -= set(members)

    def merge_into_center(
        self, comm: Comm, work: Mapping[int, LocalWork], move: Callable[[ParameterSlice], None], fade_merges: int = 0
    ) -> None:
        """Let `move` change the center by the replicas of the workers in `work`, then copy the center to them."""
        behind = self.behind.intersection(work)

        def from_one_center(params: ParameterSlice) -> None:
            for w in behind:
                params.replicas[w] += params.center - params.state(BEGAN, w)
            move(params)
            params.broadcast()

        comm.merge(MergeRule(from_one_center, fade_merges), work)

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return the batch sizes."""
        return {"batch": self.size}

    def _leave_out_stragglers(self, comm: Comm) -> None:
        """Exclude the stragglers from this merge: the rows that they were given do not count in the next round."""
        for w in self.throughput.stragglers(comm.now()):
            self.given[w] = 0
            if w not in self.behind:  # its replica began from the current center
                self.behind.add(w)
                comm.save_center(BEGAN, w)


@dataclass
class MegaBatches(Rounds):
    """Base class of algorithms whose rounds have `mega_batch` rows of all workers together."""

    mega_batch: int | None = at_least(None, 1)

    @property
    def round_rows(self) -> int:
        """Return the rows of a mega-batch, by default an equal part of an epoch; at least one batch per worker."""
        parts = max(round(self.n_rows / (MEGA_BATCH * self.batch)), LEAST_MERGES)
        return max(self.mega_batch or -(-self.n_rows // parts), sum(self.size.values()))


def tapered(rows: float, rows_left: float, n_workers: int) -> int:
    """Return `rows`, or fewer near the end of an epoch, so that all workers finish at about the same time."""
    if n_workers == 1:
        return int(rows)
    return int(min(rows, rows_left / (TAPER * n_workers)))


def moving_average(before: float | None, new: float, newest: float = NEWEST) -> float:
    """Return the exponential moving average after measurement `new` of weight `newest`; `before` is None at first."""
    return new if before is None else before + newest * (new - before)
