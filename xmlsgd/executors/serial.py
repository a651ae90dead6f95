"""Everything in this process, one step at a time, on the wall clock."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from ..learner import Job, Learner
from ..params import zeros
from .base import Executor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..devices.base import Device
    from ..records import Report, Step


class Serial(Executor):
    """Workers in turn, one for each device; steps run when they are waited for, in the order of submission."""

    def __init__(self, devices: Sequence[Device]) -> None:
        super().__init__()
        self.devices = devices
        self.workers = range(len(devices))
        self._queue: deque[Step] = deque()

    def start(self, job: Job, shared: bool) -> None:
        """Make the table and one learner a device."""
        n_rows, size = 1 if shared else 1 + len(self.devices), job.network.layout.size
        self.table = zeros(n_rows * size).reshape(n_rows, size)
        job.network.initialize(self.center, job.dataset.Y, job.seed)
        self.table[1:] = self.center
        self.learners = [Learner(job, d, self.table[0 if shared else 1 + w]) for w, d in enumerate(self.devices)]
        self._started = time.perf_counter()

    def submit(self, step: Step) -> None:
        """Queue a step."""
        self.busy.add(step.worker)
        self._queue.append(step)

    def wait(self) -> Report:
        """Run the oldest queued step."""
        step = self._queue.popleft()
        report = self.learners[step.worker].step(step)
        self.busy.remove(step.worker)
        return report

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._started

    def close(self) -> None:
        """Drop what was queued."""
        self._queue.clear()
        self.busy.clear()
