"""Training history: one record per epoch, in memory and as JSON lines.

An epoch record is a dict with "epoch", counted from 0 over all runs of a model; "first_epoch", the first epoch of its
run; "rows" and "seconds", trained since the start of the run; "loss", the mean over the rows of the epoch; and what
callbacks add, such as "P@1".
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from .callbacks import Callback, ResumedRun

EpochRecord = dict[str, Any]


class History(Callback):
    """Collect the epoch records of one or more runs.

    Parameters
    ----------
    path : path-like, optional
        File of the records as lines of JSON; a line is added at the end of each epoch. An existing file is not
        overwritten until the first epoch ends: it may be all that is left of an interrupted run. A symbolic link is
        refused, as in a shared folder anybody could put one there.

    Attributes
    ----------
    records : list of dict
        The epoch records.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.records: list[EpochRecord] = []
        self.path = Path(path) if path else None
        self._n_written = 0

    def resume(self, run: ResumedRun) -> None:
        """Take over the records of the interrupted run."""
        self.records += run.records

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Append the record."""
        self.records.append(record)
        if self.path:
            with open(self.path, "a" if self._n_written else "w", opener=_open_no_link) as lines:
                lines.writelines(json.dumps(record) + "\n" for record in self.records[self._n_written :])
            self._n_written = len(self.records)
        return False


def _open_no_link(path: str, flags: int) -> int:
    """Open a file; raise `OSError` for a symbolic link."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def models_of(records: Sequence[EpochRecord]) -> list[list[EpochRecord]]:
    """Split the records of models that were trained one after the other, by model: epochs start again with each."""
    models: list[list[EpochRecord]] = []
    for record in records:
        if not models or record["epoch"] <= models[-1][-1]["epoch"]:
            models.append([])
        models[-1].append(record)
    return models


def runs_of(records: Sequence[EpochRecord]) -> list[list[EpochRecord]]:
    """Split the records of consecutive runs, of one or several models, by run."""
    by_run = (groupby(model, lambda record: record.get("first_epoch")) for model in models_of(records))
    return [list(run) for runs in by_run for _, run in runs]


def seconds_of_all_runs(records: Sequence[EpochRecord]) -> list[float]:
    """Return for each record the seconds of training since the first run began (`runs_of`)."""
    before, seconds = 0.0, []
    for run in runs_of(records):
        seconds += [before + record["seconds"] for record in run]
        before = seconds[-1]
    return seconds
