"""Statistics of the workers of a run: work, utilisation, staleness, merges, and the contribution of each worker.

`WorkerLog` adds them to the epoch records; `summary` adds up those of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from ..algorithms.base import Algorithm
from .callbacks import Callback, ResumedRun
from .executors.base import Executor
from .history import EpochRecord, runs_of
from .messages import Report, Sharing

WorkerEntry = dict[str, Any]  # what an epoch record, or the summary of a run, tells of one worker

COUNTERS = ("merges", "merge_seconds", "transfer_seconds")  # of the executor
LOW_SHARE = 0.2  # of an equal share of the throughput: advise to exclude workers that contribute less (chosen)


@dataclass
class Tally:
    """The work of one worker: rows, updates, busy seconds, staleness and lost rows, which are not in `rows`.

    staleness : sum over the updates. stalest : maximum over the reports (`Report.staleness`).
    """

    rows: int = 0
    updates: int = 0
    busy: float = 0.0
    staleness: float = 0.0
    stalest: float = 0
    lost: int = 0

    def add(self, other: Tally) -> None:
        """Add the work of `other`."""
        stalest = max(self.stalest, other.stalest)
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.stalest = stalest

    @classmethod
    def of(cls, entry: WorkerEntry) -> Tally:
        """Return the work in an entry of a record."""
        updates, staleness = entry["updates"], entry.get("staleness", 0.0)
        stalest, lost = entry.get("staleness_max", 0), entry.get("lost", 0)
        return cls(entry["rows"], updates, entry["busy"], staleness * updates, stalest, lost)

    def entry(self, worker: int, elapsed: float, stale: bool) -> WorkerEntry:
        """Return the entry of a record; utilisation is the busy share of `elapsed` seconds. stale : has staleness."""
        found: WorkerEntry = {
            "worker": worker,
            "rows": self.rows,
            "updates": self.updates,
            "busy": round(self.busy, 6),
            "utilisation": round(self.busy / elapsed, 4) if elapsed > 0 else 0.0,
        }
        if stale:
            found |= {
                "staleness": round(self.staleness / max(self.updates, 1), 4),
                "staleness_max": round(self.stalest, 4),
            }
        return found | ({"lost": self.lost} if self.lost else {})


class WorkerLog(Callback):
    """Add statistics to each epoch record if there are several workers.

    "workers" holds for each worker: rows, updates, busy seconds, utilisation, mean and maximum staleness (if the model
    is shared), lost rows, if any, and notes of the algorithm (rows of the next batch, weight in the last merge).
    "merges", "merge_seconds" and "transfer_seconds" (pulls and pushes) are counted over the epoch. "algorithm" holds
    the other notes of the algorithm. "left" lists the workers that left, with the reason.
    """

    def __init__(self, executor: Executor, algorithm: Algorithm) -> None:
        self.executor, self.algorithm = executor, algorithm
        self._known: set[int] = set()
        self._epoch: dict[int, Tally] = {}
        self._seconds, self._n_left = 0.0, 0
        self._counted: dict[str, float] = dict.fromkeys(COUNTERS, 0)  # at the last record

    def resume(self, run: ResumedRun) -> None:
        """Count from here on: checkpoints do not hold the work of the interrupted epoch."""
        self._seconds = run.seconds

    def span(self, report: Report) -> None:
        """Count a finished span."""
        done = Tally(report.rows, report.updates, report.seconds, report.staleness * report.updates, report.staleness)
        self._epoch.setdefault(report.worker, Tally()).add(done)

    def lost(self, reports: Sequence[Report]) -> None:
        """Count lost rows separately, as they are trained again; the worker was busy all the same."""
        for report in reports:
            # Its staleness is 0: only spans on replicas can be lost once they are finished.
            lost = Tally(-report.rows, -report.updates, lost=report.rows)
            self._epoch.setdefault(report.worker, Tally()).add(lost)

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Add the statistics to the record."""
        for w in self.executor.workers:
            self._epoch.setdefault(w, Tally())
        self._known |= self._epoch.keys()
        if len(self._known) > 1:
            record["workers"] = self._entries(record["seconds"] - self._seconds)
            counted = {name: getattr(self.executor, name) for name in COUNTERS}
            record |= {name: round(counted[name] - self._counted[name], 6) for name in COUNTERS}
            self._counted = counted
            # The algorithm that "auto" chose, and why.
            choice = {"algorithm": type(self.algorithm).__name__, "reason": self.algorithm.reason}
            record["algorithm"] = (choice if self.algorithm.reason else {}) | self.algorithm.notes()
        if left := self.executor.left[self._n_left :]:
            record["left"] = [asdict(event) for event in left]
        self._epoch, self._seconds, self._n_left = {}, record["seconds"], len(self.executor.left)
        return False

    def _entries(self, elapsed: float) -> list[WorkerEntry]:
        """Return an entry for each worker, with the notes of the algorithm."""
        tells_staleness, notes = self.algorithm.sharing is not Sharing.REPLICAS, self.algorithm.worker_notes()
        return [
            self._epoch[w].entry(w, elapsed, tells_staleness)
            | {name: by_worker[w] for name, by_worker in notes.items() if w in by_worker}
            for w in sorted(self._epoch)
        ]


def summary(records: Sequence[EpochRecord]) -> list[WorkerEntry]:
    """Return an entry for each of several workers over all records: its contribution, and how often it left, if so."""
    logged = [record for record in records if "workers" in record]
    tallies: dict[int, Tally] = {}
    for record in logged:
        for entry in record["workers"]:
            tallies.setdefault(entry["worker"], Tally()).add(Tally.of(entry))
    if len(tallies) < 2:
        return []
    contributions = contributions_of(tallies, sum(record["merge_seconds"] for record in logged))
    stale = any("staleness" in entry for entry in logged[-1]["workers"])
    elapsed = sum(run[-1]["seconds"] for run in runs_of(logged))
    learning = {entry["worker"]: entry["learning"] for entry in logged[-1]["workers"] if "learning" in entry}
    left = Counter(event["worker"] for record in logged for event in record.get("left", ()))
    return [
        tallies[w].entry(w, elapsed, stale)
        | {"contribution": round(contributions[w], 4)}
        | ({"learning": learning[w]} if w in learning else {})
        | ({"left": left[w]} if w in left else {})
        for w in sorted(tallies)
    ]


def contributions_of(tallies: Mapping[int, Tally], merge_seconds: float) -> dict[int, float]:
    """Return the contribution of each worker to the throughput: 1 - rows/s without it / rows/s with it.

    Model: a run takes as long as its busiest worker is busy, plus its merges. Without a worker the others take over
    its rows in proportion to theirs, and merges take as long: each has one replica less, but there may be more of them.
    Negative if the worker slows the run.
    """
    rows = sum(tally.rows for tally in tallies.values())
    whole = max(tally.busy for tally in tallies.values()) + merge_seconds
    values = {}
    for w in tallies:
        others = [tally for v, tally in tallies.items() if v != w]
        kept = sum(tally.rows for tally in others)
        if not kept:
            values[w] = 1.0
            continue
        without = max(tally.busy for tally in others) * rows / kept + merge_seconds
        values[w] = 1 - whole / without if without > 0 else 0.0
    return values


def describe_choice(records: Sequence[EpochRecord]) -> list[str]:
    """Return a line with the algorithm that "auto" chose for several workers, and the reason."""
    notes = records[-1].get("algorithm", {}) if records else {}
    return [f"algorithm: {notes['algorithm']}; {notes['reason']}"] if "reason" in notes else []


def advice(workers: Sequence[WorkerEntry]) -> list[str]:
    """Return a line of advice for each worker of a `summary` that contributes little or nothing; none if one left.

    Learners that Crossbow's tuner leaves idle are excluded already.
    """
    if any("left" in entry for entry in workers):  # it had less time than the others, who worked for it
        return []
    workers = [entry for entry in workers if entry.get("learning", True)]
    lines = []
    for entry in workers:
        worker, share = f"worker {entry['worker']}", entry["contribution"]
        if share <= -0.01:
            lines.append(f"{worker} slows down the others: without it, {-100 * share:.0f} % more rows per second")
        elif share < LOW_SHARE / len(workers):
            lines.append(f"{worker} contributes {100 * max(share, 0):.0f} % of the rows per second; it can be excluded")
    return lines
