"""The costs of a real device, found by timing its steps: what makes the seconds of a simulated clock mean something."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...nn.parameters import zeros
from ..learner import Learner
from ..messages import Report, Step
from .costs import VirtualDevice, fit_device

if TYPE_CHECKING:
    from ...devices.base import Device
    from ..learner import Job

SIZES = (1, 4, 16, 32, 64, 128, 256)  # rows of the timed updates
REPEATS = 5  # of which the shortest counts: what else runs on the machine only makes steps longer


def measure_device(job: Job, device: Device, lazy: bool = False) -> VirtualDevice:
    """Return the virtual device of speed 1 that takes as long as `device`, without noise.

    lazy : whether a device with a memory of its own keeps the model from step to step, as it does by itself. The device
    must have been started. Takes about as long as 2,500 rows of training.
    """
    flat = zeros(job.network.layout.size)
    job.network.initialize(flat, job.dataset.Y, job.seed)
    learner = Learner(job, device, flat, lazy=lazy)
    learner.warm_up()
    sizes = sorted({min(size, job.dataset.n_rows) for size in SIZES})
    reports = [_shortest([learner.step(Step(0, 0, 0, size, 0.0)) for _ in range(1 + REPEATS)][1:]) for size in sizes]
    # Few rows leave few sizes; each twice says no more and no less.
    return replace(fit_device(reports if len(reports) >= 3 else 3 * reports), noise=0.0)


def _shortest(reports: list[Report]) -> Report:
    """Return the report of the shortest duration."""
    return min(reports, key=lambda report: report.seconds)
