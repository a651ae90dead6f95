"""Who did what in a run of several workers: work, waiting, staleness, merges, and what each worker brings.

The epoch records get it as "workers"; `summary` adds them up.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from .callbacks import Callback, ResumedRun
from .history import EpochRecord, runs_of
from .messages import Report, Sharing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from ..algorithms.base import Algorithm
    from .executors.base import Executor

COUNTERS = ("merges", "merge_seconds", "transfer_seconds")  # of the executor, told by epoch
EARNS = 0.2  # of an equal share of the throughput: who brings less is hardly missed; chosen, for a line of advice alone


@dataclass
class Tally:
    """The work of one worker: rows and updates that count, seconds at work, rows whose work was lost.

    staleness : summed over the updates. stalest : the largest.
    """

    rows: int = 0
    updates: int = 0
    busy: float = 0.0
    staleness: float = 0.0
    stalest: int = 0
    lost: int = 0

    def add(self, other: Tally) -> None:
        """Add the work of `other`."""
        self.rows += other.rows
        self.updates += other.updates
        self.busy += other.busy
        self.staleness += other.staleness
        self.stalest = max(self.stalest, other.stalest)
        self.lost += other.lost

    @classmethod
    def of(cls, entry: EpochRecord) -> Tally:
        """Return what an entry of a record tells."""
        updates, staleness = entry["updates"], entry.get("staleness", 0.0)
        stalest, lost = entry.get("staleness_max", 0), entry.get("lost", 0)
        return cls(entry["rows"], updates, entry["busy"], staleness * updates, stalest, lost)

    def entry(self, worker: int, elapsed: float, stale: bool) -> EpochRecord:
        """Return the numbers as a record; utilisation is the busy share of `elapsed` seconds."""
        found: EpochRecord = {
            "worker": worker,
            "rows": self.rows,
            "updates": self.updates,
            "busy": round(self.busy, 6),
            "utilisation": round(self.busy / elapsed, 4) if elapsed > 0 else 0.0,
        }
        if stale:
            found |= {"staleness": round(self.staleness / max(self.updates, 1), 4), "staleness_max": self.stalest}
        return found | ({"lost": self.lost} if self.lost else {})


class WorkerLog(Callback):
    """Tell of the workers of a run: where there is more than one, every record gets what they did in its epoch.

    "workers" holds for each worker rows, updates, seconds busy, utilisation, mean and largest staleness (where the
    model is shared), rows whose work was lost with it, if any, which are not among its rows, and what the algorithm
    notes of it: rows of its next batch, weight in the last merge. "merges",
    "merge_seconds" and "transfer_seconds", of pulls and pushes, are of the epoch, "algorithm" holds its other notes.
    "left" tells who left in the epoch, and why.
    """

    def __init__(self, executor: Executor, algorithm: Algorithm) -> None:
        self.executor, self.algorithm = executor, algorithm
        self._known: set[int] = set()
        self._epoch: dict[int, Tally] = {}
        self._seconds, self._departures = 0.0, 0
        self._counted: dict[str, float] = dict.fromkeys(COUNTERS, 0)  # until the last record

    def resume(self, run: ResumedRun) -> None:
        """Count from here: what was done before in the epoch is not known any more."""
        self._seconds = run.seconds

    def step(self, report: Report) -> None:
        """Count a finished span."""
        done = Tally(report.rows, report.updates, report.seconds, report.staleness * report.updates, report.staleness)
        self._epoch.setdefault(report.worker, Tally()).add(done)

    def lost(self, reports: Sequence[Report]) -> None:
        """Count what is lost apart: others do it again. Its worker was busy with it all the same."""
        for report in reports:
            # Of a shared model, where staleness is counted, no finished step is ever lost.
            gone = Tally(-report.rows, -report.updates, lost=report.rows)
            self._epoch.setdefault(report.worker, Tally()).add(gone)

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Add the work of an epoch to its record."""
        for w in self.executor.workers:
            self._epoch.setdefault(w, Tally())
        self._known |= self._epoch.keys()
        if len(self._known) > 1:
            record["workers"] = self._entries(record["seconds"] - self._seconds)
            counted = {name: getattr(self.executor, name) for name in COUNTERS}
            record |= {name: round(counted[name] - self._counted[name], 6) for name in COUNTERS}
            self._counted = counted
            record["algorithm"] = self.algorithm.notes()
        if left := self.executor.departures[self._departures :]:
            record["left"] = [asdict(event) for event in left]
        self._epoch, self._seconds, self._departures = {}, record["seconds"], len(self.executor.departures)
        return False

    def _entries(self, elapsed: float) -> list[EpochRecord]:
        """Return an entry a worker of the epoch, with what the algorithm notes of it."""
        tells_staleness, notes = self.algorithm.sharing is not Sharing.REPLICAS, self.algorithm.worker_notes()
        return [
            self._epoch[w].entry(w, elapsed, tells_staleness)
            | {name: by_worker[w] for name, by_worker in notes.items() if w in by_worker}
            for w in sorted(self._epoch)
        ]


def summary(records: Sequence[EpochRecord]) -> list[EpochRecord]:
    """Return an entry a worker over all records of runs, with what it brings; none where it was alone."""
    told = [record for record in records if "workers" in record]
    tallies: dict[int, Tally] = {}
    for record in told:
        for entry in record["workers"]:
            tallies.setdefault(entry["worker"], Tally()).add(Tally.of(entry))
    if len(tallies) < 2:
        return []
    brings = marginal_values(tallies, sum(record["merge_seconds"] for record in told))
    stale = any("staleness" in entry for entry in told[-1]["workers"])
    elapsed = sum(run[-1]["seconds"] for run in runs_of(told))
    return [tallies[w].entry(w, elapsed, stale) | {"brings": round(brings[w], 4)} for w in sorted(tallies)]


def marginal_values(tallies: Mapping[int, Tally], merge_seconds: float) -> dict[int, float]:
    """Return the share of the throughput that each of several workers brings: 1 - rows/s without it over with it.

    A run takes as long as its busiest worker is busy, plus its merges. Without a worker the others take over its rows
    in proportion to theirs, and a merge reads and writes a vector less. Below 0: the run would be faster without it.
    """
    n, rows = len(tallies), sum(tally.rows for tally in tallies.values())
    whole = max(tally.busy for tally in tallies.values()) + merge_seconds
    values = {}
    for w in tallies:
        others = [tally for v, tally in tallies.items() if v != w]
        kept = sum(tally.rows for tally in others)
        if not kept:
            values[w] = 1.0
            continue
        without = max(tally.busy for tally in others) * rows / kept + merge_seconds * n / (n + 1)
        values[w] = 1 - whole / without if without > 0 else 0.0
    return values


def choice(records: Sequence[EpochRecord]) -> list[str]:
    """Return a line with the algorithm that `auto` has chosen for several workers, and why; none where a user chose."""
    notes = records[-1].get("algorithm", {}) if records else {}
    return [f"algorithm: {notes['algorithm']}; {notes['reason']}"] if "reason" in notes else []


def advice(workers: Sequence[EpochRecord]) -> list[str]:
    """Return a line for each worker of a run's `summary` that is not worth its place."""
    lines = []
    for entry in workers:
        who, brings = f"worker {entry['worker']}", entry["brings"]
        if brings < 0:
            lines.append(f"{who} slows the others: without it, {-100 * brings:.0f} % more rows a second")
        elif brings < EARNS / len(workers):
            lines.append(f"{who} brings {100 * brings:.0f} % of the rows a second; it can be excluded")
    return lines
