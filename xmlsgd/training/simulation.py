"""What would this fleet give me? Runs on a simulated clock, and what they reached at which time and price.

The arithmetic is real, so that the model is the one that such a fleet would train; only the clock is simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..algorithms.sequential import Sequential
from ..errors import DataError
from .callbacks import Callback
from .executors.simulated import Simulated
from .executors.virtual_device import fastest, scheduling_efficiency
from .history import EpochRecord
from .loop import train

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ..algorithms.base import Algorithm
    from ..devices.base import Device
    from ..nn.schedules import Schedule
    from .executors.virtual_device import VirtualDevice
    from .learner import Job
    from .messages import Report

    Measure = Callable[[np.ndarray], dict[str, float]]


@dataclass(frozen=True, eq=False)
class Setting:
    """What the runs of a comparison have in common.

    job : its seed is that of the devices' noise, too. measure : from parameters to {"P@1": percent, ...}. points :
    measurements an epoch, >= 1. bandwidth : bytes a second of merges, pulls and pushes.
    """

    job: Job
    schedule: Schedule
    device: Device
    measure: Measure
    points: int = 4
    bandwidth: float = 2e10

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges."""
        if self.points < 1 or not 0 < self.bandwidth < math.inf:
            raise DataError(f"points must be at least 1, bandwidth above 0, got {self.points} and {self.bandwidth}")

    @property
    def rows(self) -> int:
        """Return the rows of all epochs."""
        return self.schedule.epochs * self.job.dataset.n_rows

    @property
    def nnz(self) -> float:
        """Return the stored features of an average row."""
        return self.job.dataset.X.nnz / self.job.dataset.n_rows

    def seeded(self, seed: int) -> Setting:
        """Return the same with another seed."""
        return replace(self, job=replace(self.job, seed=seed))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run was: the records of its epochs, the workers' summary, and measurements in the course of time.

    curve : records of "seconds", "rows", "loss" (mean over the rows since the last) and what was measured.
    efficiency : see `scheduling_efficiency`. cost : money for the fleet until the end.
    """

    fleet: Sequence[VirtualDevice]
    records: list[EpochRecord]
    workers: list[EpochRecord]
    curve: list[EpochRecord]
    diverged: bool
    efficiency: float
    cost: float

    @property
    def seconds(self) -> float:
        """Return the simulated seconds of the run."""
        return float(self.records[-1]["seconds"]) if self.records else 0.0

    @property
    def rows_per_second(self) -> float:
        """Return the rows trained a second."""
        return self.records[-1]["rows"] / self.seconds if self.records else 0.0

    @property
    def utilisation(self) -> float:
        """Return the busy share of the workers' time, 1 for a device alone."""
        shares = [entry["utilisation"] for entry in self.workers]
        return sum(shares) / len(shares) if shares else 1.0

    @property
    def sync_share(self) -> float:
        """Return the seconds of merges, pulls and pushes over those of the run; others may work meanwhile."""
        spent = sum(record.get(name, 0.0) for record in self.records for name in ("merge_seconds", "transfer_seconds"))
        return spent / self.seconds if self.seconds else 0.0

    def final(self, name: str = "P@1") -> float:
        """Return a measure at the end, 0 for a run that diverged."""
        return float(self.curve[-1][name]) if self.curve and not self.diverged else 0.0

    def seconds_to(self, target: float, name: str = "P@1") -> float | None:
        """Return the second at which a measure first reached `target`, None if it never did."""
        return next((point["seconds"] for point in self.curve if point[name] >= target), None)


class Curve(Callback):
    """Measure the model some times an epoch, by the rows that are done; the simulated clock does not count it."""

    def __init__(self, measure: Measure, executor: Simulated, points: int) -> None:
        self.measure, self.executor, self.points = measure, executor, points
        self.curve: list[EpochRecord] = []

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Place the measurements."""
        self.center, self.rows, self.end, self.n_rows = center, 0, n_rows, n_rows
        self.losses, self.counted = 0.0, 0
        self.every = n_rows / self.points
        self.next = self.every

    def step(self, report: Report) -> None:
        """Measure if it is time; at the end of an epoch its last merge comes first."""
        self.rows += report.rows
        self.losses, self.counted = self.losses + report.loss, self.counted + report.rows
        if self.next <= self.rows < self.end:
            self._note(self.executor.now(), self.rows, self.measure(self.center))

    def lost(self, reports: Sequence[Report]) -> None:
        """Count rows that are trained again once; their losses were measured all the same."""
        self.rows -= sum(report.rows for report in reports)

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Measure the model of the epoch."""
        found = self.measure(center)
        record.update(found)
        self.rows, self.end = record["rows"], record["rows"] + self.n_rows
        self._note(record["seconds"], self.rows, found)
        return False

    def _note(self, seconds: float, rows: int, found: dict[str, float]) -> None:
        """Add a point; the next is due after the rows of a part of an epoch."""
        loss = self.losses / max(self.counted, 1)
        self.losses, self.counted = 0.0, 0
        self.curve.append({"seconds": seconds, "rows": rows, "loss": loss, **found})
        self.next = self.every * (rows // self.every + 1)


def simulate(setting: Setting, algorithm: Algorithm, fleet: Sequence[VirtualDevice]) -> Outcome:
    """Train with `algorithm` on `fleet` and return what came of it. The setting's device must have been started."""
    executor = Simulated(setting.device, fleet, setting.bandwidth, setting.job.seed)
    curve = Curve(setting.measure, executor, setting.points)
    run = train(setting.job, algorithm, executor, setting.schedule, [curve])
    rows, seconds = (run.records[-1]["rows"], run.records[-1]["seconds"]) if run.records else (0, 0.0)
    efficiency = scheduling_efficiency(fleet, rows, seconds, algorithm.batch, setting.nnz)
    cost = sum(device.cost(seconds) for device in fleet)
    return Outcome(fleet, run.records, run.workers, curve.curve, run.diverged, efficiency, cost)


def fastest_alone(setting: Setting, algorithm: Algorithm, fleet: Sequence[VirtualDevice]) -> Outcome:
    """Return what the fastest device would do without the others, at the batch and the rate of `algorithm`."""
    return simulate(setting, Sequential(algorithm.batch, algorithm.learning_rate), [fastest(fleet)])
