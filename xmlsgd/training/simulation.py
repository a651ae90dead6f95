"""Simulate training on a fleet of devices: accuracy over time and utilisation.

The arithmetic is real, so that the model is the one that such a fleet would train; only the clock is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms.base import Algorithm
from ..data.validation import Checked, above_zero, at_least
from ..devices.base import Device
from ..nn.schedules import Schedule
from .callbacks import Callback
from .executors.simulated import Simulated
from .executors.virtual_device import VirtualDevice, scheduling_efficiency
from .history import EpochRecord
from .job import Job
from .loop import train
from .messages import Report
from .worker_log import WorkerEntry

CurvePoint = dict[str, Any]  # "seconds", "rows", "loss" (mean over the rows since the last point) and metrics


@dataclass(frozen=True, eq=False)
class Experiment(Checked):
    """The common settings of the simulated runs of a comparison.

    Attributes
    ----------
    job : Job
        The job; its seed also draws the noise of the devices.
    schedule : Schedule
        Learning-rate schedule and number of epochs.
    device : Device
        Computes the steps; must have been started.
    measure : callable
        Maps the model to metrics by name, e.g. ``{"P@1": 80.5}``.
    points : int, default=4
        Measurements per epoch.
    bandwidth : float, default=2e10
        Bytes per second of merges, pulls and pushes.
    """

    job: Job
    schedule: Schedule
    device: Device
    measure: Callable[[np.ndarray], dict[str, float]]
    points: int = at_least(4, 1)
    bandwidth: float = above_zero(2e10)

    @property
    def rows(self) -> int:
        """Rows of all epochs."""
        return self.schedule.epochs * self.job.dataset.n_rows

    @property
    def nnz(self) -> float:
        """Stored features of an average row."""
        return self.job.dataset.X.nnz / self.job.dataset.n_rows


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a simulated run: its epoch records, the summary of its workers, and its learning curve.

    efficiency : see `scheduling_efficiency`. sync_seconds : duration of all merges, pulls and pushes, also of a single
    worker.
    """

    fleet: Sequence[VirtualDevice]
    records: list[EpochRecord]
    workers: list[WorkerEntry]
    curve: list[CurvePoint]
    diverged: bool
    efficiency: float
    sync_seconds: float

    @property
    def seconds(self) -> float:
        """Simulated seconds of the run."""
        return float(self.records[-1]["seconds"]) if self.records else 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows per simulated second."""
        return self.records[-1]["rows"] / self.seconds if self.records else 0.0

    @property
    def utilisation(self) -> float:
        """Busy share of the workers' time, 1 for a single device."""
        shares = [entry["utilisation"] for entry in self.workers]
        return sum(shares) / len(shares) if shares else 1.0

    @property
    def sync_share(self) -> float:
        """Seconds of merges, pulls and pushes over those of the run; workers may be busy at the same time."""
        return self.sync_seconds / self.seconds if self.seconds else 0.0

    def final(self) -> float:
        """Return P@1 at the end, 0 for a run that diverged."""
        return float(self.curve[-1]["P@1"]) if self.curve and not self.diverged else 0.0

    def seconds_to(self, target: float) -> float | None:
        """Return the second at which P@1 first reached `target`, None if it never did."""
        return next((point["seconds"] for point in self.curve if point["P@1"] >= target), None)


class LearningCurve(Callback):
    """Measure the model `points` times per epoch; the simulated clock stops while it is measured."""

    def __init__(self, experiment: Experiment, executor: Simulated) -> None:
        self.measure, self.points, self.executor = experiment.measure, experiment.points, executor
        self.curve: list[CurvePoint] = []

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Schedule the measurements."""
        self.rows, self.end, self.n_rows = 0, n_rows, n_rows
        self.losses, self.counted = 0.0, 0
        self.every = n_rows / self.points
        self.next = self.every

    def span(self, report: Report) -> None:
        """Measure the model if it is time, but not at the end of an epoch, which `epoch` measures after the merge."""
        self.rows += report.rows
        self.losses, self.counted = self.losses + float(report.loss), self.counted + report.rows
        if self.next <= self.rows < self.end:
            self._note(self.executor.now(), self.rows, self.measure(self.executor.center))

    def lost(self, reports: Sequence[Report]) -> None:
        """Do not count lost rows, which are trained again; their losses stay in the mean."""
        self.rows -= sum(report.rows for report in reports)

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Measure the model of the epoch."""
        found = self.measure(center)
        record.update(found)
        self.rows, self.end = record["rows"], record["rows"] + self.n_rows
        self._note(record["seconds"], self.rows, found)
        return False

    def _note(self, seconds: float, rows: int, found: dict[str, float]) -> None:
        """Add a point and schedule the next one."""
        loss = self.losses / max(self.counted, 1)
        self.losses, self.counted = 0.0, 0
        self.curve.append({"seconds": seconds, "rows": rows, "loss": loss, **found})
        self.next = self.every * (rows // self.every + 1)


def simulate(experiment: Experiment, algorithm: Algorithm, fleet: Sequence[VirtualDevice]) -> Outcome:
    """Train with `algorithm` on `fleet`."""
    executor = Simulated(experiment.device, fleet, experiment.bandwidth, experiment.job.seed)
    curve = LearningCurve(experiment, executor)
    run = train(experiment.job, algorithm, executor, experiment.schedule, [curve])
    rows, seconds = (run.records[-1]["rows"], run.records[-1]["seconds"]) if run.records else (0, 0.0)
    efficiency = scheduling_efficiency(fleet, rows, seconds, algorithm.batch, experiment.nnz)
    spent = executor.merge_seconds + executor.transfer_seconds
    return Outcome(fleet, run.records, run.workers, curve.curve, run.diverged, efficiency, spent)
