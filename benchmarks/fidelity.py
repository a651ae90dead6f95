"""How well the simulated clock foretells a real run: costs fitted to its reports, its algorithm run again on them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from xmlsgd.algorithms.base import Algorithm
from xmlsgd.devices.base import EXACT
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice, fit_device
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.messages import Report


class Still(Reference):
    """Computes nothing, for networks of one hidden layer: who gets which rows when depends on durations alone."""

    def input_forward(self, X: Any, rows: np.ndarray, layer: Any) -> np.ndarray:
        """Return zeros."""
        return np.zeros((len(rows), layer.W.shape[1]), np.float32)

    def output_step(
        self, A: np.ndarray, targets: Any, layer: Any, loss: Any, update: Any, rounding: Any = EXACT
    ) -> tuple[float, np.ndarray]:
        """Leave the layer as it is."""
        return 0.0, A

    def input_step(self, X: Any, rows: np.ndarray, dZ: Any, layer: Any, update: Any) -> None:
        """Leave the layer as it is."""


def fitted_fleet(reports: Iterable[Report]) -> list[VirtualDevice]:
    """Return a device for each worker of a run, with the costs of its steps; all write a shared model in place."""
    by_worker: dict[int, list[Report]] = defaultdict(list)
    for report in reports:
        by_worker[report.worker].append(report)
    return [replace(fit_device(by_worker[w]), in_place=True) for w in sorted(by_worker)]


def predicted_seconds(
    algorithm: Algorithm, fleet: list[VirtualDevice], job: Job, epochs: int = 1, bandwidth: float = math.inf
) -> float:
    """Return the seconds that a run would take on the simulated clock."""
    run = train(job, algorithm, Simulated(Still(), fleet, bandwidth, job.seed), Schedule(epochs))
    return float(run.records[-1]["seconds"])
