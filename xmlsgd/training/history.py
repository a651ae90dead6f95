"""What a run leaves behind: one record an epoch; and those who watch it: measures, stop rules, progress.

A record has "epoch", counted from 0 over all runs of a model; "first_epoch", the first one of the run that it is of;
"rows" and "seconds", trained on and taken since the start of that run; "loss", the mean over the rows of the epoch; and
what monitors add, such as "P@1".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from .messages import Report

Record = dict[str, Any]


@dataclass(frozen=True)
class SoFar:
    """How far a run was when its checkpoint was written.

    records : of its finished epochs. rows, seconds : trained on and taken. state : of the monitor that is told, as it
    returned it; {} where it was not there.
    """

    records: Sequence[Record]
    rows: int
    seconds: float
    state: Mapping[str, Any]


class Monitor:
    """Base of all who watch a run.

    The run's clock stands still in `epoch` and has stopped before `finish`. It runs in the others, which must be quick.
    """

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Note the rows of an epoch, the number of epochs and the model that the run will change in place.

        What was noted of an earlier run is over: one monitor may watch several, one after the other.
        """

    def settings(self) -> dict[str, Any]:
        """Return by name what makes a run another one where it differs."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint is to hold: numbers, texts and arrays by name."""
        return {}

    def resume(self, so_far: SoFar) -> None:
        """Note, after `start`, that the run goes on from a checkpoint."""

    def reads(self, report: Report) -> bool:
        """Return whether `step` will read the model that `start` was given; a GPU's is brought up to date for it."""
        return False

    def step(self, report: Report) -> None:
        """Note a finished step."""

    def lost(self, reports: Sequence[Report]) -> None:
        """Note that the work of finished steps is lost with a worker that left: their rows are trained again."""

    def epoch(self, record: Record, center: np.ndarray) -> bool:
        """Look at an epoch's `record` and the model; add to the record; return True to stop the run."""
        return False

    def finish(self, center: np.ndarray) -> None:
        """See the model at the end; may replace it in place."""


class History(Monitor):
    """The records of runs, in memory and, with a `path`, as JSON lines that grow while they go on."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.records: list[Record] = []
        self.path = Path(path) if path else None

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Empty the file before the first run; records of later ones are added."""
        if self.path and not self.records:
            self.path.write_text("")

    def resume(self, so_far: SoFar) -> None:
        """Take the records over."""
        for record in so_far.records:
            self._add(record)

    def epoch(self, record: Record, center: np.ndarray) -> bool:
        """Keep the record."""
        self._add(record)
        return False

    def _add(self, record: Record) -> None:
        self.records.append(record)
        if self.path:
            with self.path.open("a") as lines:
                lines.write(json.dumps(record) + "\n")


def runs_of(records: Sequence[Record]) -> list[list[Record]]:
    """Return the records of each run, given those of runs of one model, or of several, one after the other."""
    runs: list[list[Record]] = []
    for record in records:
        if runs and _first(record) == _first(runs[-1][-1]) and record["epoch"] > runs[-1][-1]["epoch"]:
            runs[-1].append(record)
        else:
            runs.append([record])
    return runs


def _first(record: Record) -> int:
    """Return the first epoch of the run; 0 where a model was saved before this was noted."""
    first: int = record.get("first_epoch", 0)
    return first


def seconds_of_all_runs(records: Sequence[Record]) -> list[float]:
    """Return for each record the seconds of training since the first one, over all runs (`runs_of`)."""
    before, seconds = 0.0, []
    for run in runs_of(records):
        seconds += [before + record["seconds"] for record in run]
        before = seconds[-1]
    return seconds


class Evaluation(Monitor):
    """Measure the model after every epoch by `measure(center) -> {"P@1": percent, ...}`.

    rows : what tells the rows that it measures on from others, where that decides about the run; "" where it does not.
    """

    def __init__(self, measure: Callable[[np.ndarray], dict[str, float]], rows: str = "") -> None:
        self.measure, self.rows = measure, rows

    def settings(self) -> dict[str, Any]:
        """Return on what is measured, where that decides about the run."""
        return {"rows": self.rows} if self.rows else {}

    def epoch(self, record: Record, center: np.ndarray) -> bool:
        """Add the measures to the record."""
        record.update(self.measure(center))
        return False


class EarlyStopping(Monitor):
    """Stop when `metric` has not risen by more than `tol` for `patience` epochs; put the best model back.

    `snapshot` keeps a model (`snapshot.Snapshot`).
    """

    def __init__(self, metric: str, patience: int, tol: float, snapshot: Any) -> None:
        self.metric, self.patience, self.tol, self.snapshot = metric, patience, tol, snapshot

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Begin with no best model."""
        self.shape = center.shape
        self.best, self.best_epoch, self.waited = float("-inf"), -1, 0

    def settings(self) -> dict[str, Any]:
        """Return what decides when a run stops."""
        return {"metric": self.metric, "patience": self.patience, "tol": self.tol}

    def state(self) -> dict[str, Any]:
        """Return the best model, float32 (n_params,), how good it was, and for how long."""
        if self.best_epoch < 0:
            return {}
        best = {"best": self.best, "best_epoch": self.best_epoch, "waited": self.waited}
        return best | {"model": self.snapshot.copy()}

    def resume(self, so_far: SoFar) -> None:
        """Take what was best over."""
        if kept := so_far.state:
            self.best, self.best_epoch, self.waited = kept["best"], kept["best_epoch"], kept["waited"]
            self.snapshot.keep(kept["model"].reshape(self.shape))

    def epoch(self, record: Record, center: np.ndarray) -> bool:
        """Keep the model if it is the best so far; return True when patience is at an end."""
        if record[self.metric] > self.best + self.tol:
            self.best, self.best_epoch, self.waited = record[self.metric], record["epoch"], 0
            self.snapshot.keep(center)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def finish(self, center: np.ndarray) -> None:
        """Put the best model back."""
        if self.waited:
            self.snapshot.restore(center)
