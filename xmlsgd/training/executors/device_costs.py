"""Fit the costs of a virtual device to the timed steps of a real one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...devices.base import Device
from ...nn.parameters import zeros
from ..learner import Job, Learner
from ..messages import Report, Step
from .virtual_device import VirtualDevice

SIZES = (1, 4, 16, 32, 64, 128, 256)  # rows of the timed updates
REPEATS = 5  # the shortest counts: other work on the machine only lengthens steps


def measure_device(job: Job, device: Device, lazy: bool = False) -> VirtualDevice:
    """Return the virtual device of speed 1, without noise, that takes as long as `device`.

    The device must have been started. Takes about as long as training on 2,500 rows.

    lazy : whether a GPU keeps the model from step to step, as it does the optimizer state, or copies it at each step.
    """
    flat = zeros(job.network.layout.size)
    job.network.initialize(flat, job.dataset.Y, job.seed)
    learner = Learner(job, device, flat, pulled=not lazy)
    learner.load_kernels()
    sizes = sorted({min(size, job.dataset.n_rows) for size in SIZES})
    timed = [[learner.step(Step(0, 0, 0, size, 0.0)) for _ in range(1 + REPEATS)][1:] for size in sizes]
    reports = [min(repeats, key=lambda report: report.seconds) for repeats in timed]
    return replace(fit_device(reports), noise=0.0)


def fit_device(reports: Iterable[Report]) -> VirtualDevice:
    """Return the device whose costs fit real reports best, by non-negative least squares of relative errors.

    The noise is the standard deviation of the logarithm of real over fitted durations.
    """
    from scipy.optimize import nnls

    table = np.array([(r.updates, r.rows, r.nnz, r.seconds) for r in reports], np.float64)
    costs, _ = nnls(table[:, :3] / table[:, 3:], np.ones(len(table)))
    fitted = table[:, :3] @ costs
    overhead, per_row, per_nnz = map(float, costs)
    return VirtualDevice(overhead, per_row, per_nnz, noise=float(np.std(np.log(table[:, 3] / fitted))))
