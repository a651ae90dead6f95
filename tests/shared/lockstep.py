"""The simulated clock over real worker processes: one span at a time, in simulated order, on shared parameters.

Shows that pickling, mapping and writing back change nothing: a run equals the simulated one to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xmlsgd.training.executors.base import Learned
from xmlsgd.training.executors.processes import WorkerPool
from xmlsgd.training.executors.simulated import Simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xmlsgd.devices.base import Device
    from xmlsgd.training.executors.virtual_device import VirtualDevice
    from xmlsgd.training.executors.worker_process import WorkerProcess
    from xmlsgd.training.job import Job
    from xmlsgd.training.messages import Report, Span
    from xmlsgd.training.shared_parameters import SharedParameters, SharedShape


class Remote:
    """The learner of a worker process."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        process.receive()  # that it is ready

    def train_span(self, span: Span) -> Report:
        """Run one span and wait for its report."""
        self.process.pipe.send(span)
        report = self.process.receive()
        assert report is not None
        return report

    def fetch(self, state: bool) -> None:
        """Do nothing: the process writes to the shared parameters."""

    def invalidate(self, state: bool) -> None:
        """Do nothing: the process reads the shared parameters."""


class Lockstep(Simulated):
    """One process for each virtual device of `fleet`; `make_device` makes the real device of each."""

    def __init__(self, make_device: Callable[[], Device], fleet: Sequence[VirtualDevice], **settings: Any) -> None:
        super().__init__(make_device(), fleet, **settings)
        self.pool = WorkerPool([make_device] * len(fleet))

    def _make_shared(self, job: Job, shape: SharedShape) -> SharedParameters:
        self._shape = shape
        return self.pool.make_shared(job, shape)

    def _make_learners(self, job: Job, devices: Sequence[Device]) -> None:
        self.pool.start(job, self._shape, self.arrays)
        self.learners = [Remote(self.pool.processes[w]) for w in self.workers]

    def result(self) -> Learned:
        """Return copies of model and optimizer state, and its updates."""
        params, state, updates = super().result()
        return Learned(np.array(params), np.array(state), updates)

    def close(self) -> None:
        """End the processes."""
        super().close()
        self.pool.close()
