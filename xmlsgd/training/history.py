"""Training history: one record per epoch, in memory and as JSON lines.

An epoch record is a dict with "epoch", counted from 0 over all runs of a model; "first_epoch", the first epoch of its
run; "rows" and "seconds", trained since the start of the run; "loss", the mean over the rows of the epoch; and what
callbacks add, such as "P@1".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .callbacks import Callback

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from .callbacks import ResumedRun

EpochRecord = dict[str, Any]


class History(Callback):
    """Collect the epoch records of one or more runs.

    Parameters
    ----------
    path : path-like, optional
        File to which each record is appended as a line of JSON when its epoch ends; emptied by the first run.

    Attributes
    ----------
    records : list of dict
        The epoch records.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.records: list[EpochRecord] = []
        self.path = Path(path) if path else None

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Empty the file before the first run."""
        if self.path and not self.records:
            self.path.write_text("")

    def resume(self, run: ResumedRun) -> None:
        """Take over the records of the interrupted run."""
        for record in run.records:
            self.epoch(record)

    def epoch(self, record: EpochRecord, center: np.ndarray | None = None) -> bool:
        """Append the record."""
        self.records.append(record)
        if self.path:
            with self.path.open("a") as lines:
                lines.write(json.dumps(record) + "\n")
        return False


def runs_of(records: Sequence[EpochRecord]) -> list[list[EpochRecord]]:
    """Split the records of consecutive runs, of one model or of several, by run."""
    runs: list[list[EpochRecord]] = []
    for record in records:
        if runs and _same_run(runs[-1][-1], record):
            runs[-1].append(record)
        else:
            runs.append([record])
    return runs


def _same_run(earlier: EpochRecord, later: EpochRecord) -> bool:
    """Return whether two consecutive records belong to the same run."""
    return bool(earlier.get("first_epoch") == later.get("first_epoch") and earlier["epoch"] < later["epoch"])


def seconds_of_all_runs(records: Sequence[EpochRecord]) -> list[float]:
    """Return for each record the seconds of training since the first run began (`runs_of`)."""
    before, seconds = 0.0, []
    for run in runs_of(records):
        seconds += [before + record["seconds"] for record in run]
        before = seconds[-1]
    return seconds
