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

    import numpy as np

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
        start = job.start
        if start is not None and n_rows == 1:
            self.table = start.params.reshape(1, size)
        else:
            self.table = zeros(n_rows * size).reshape(n_rows, size)
            if start is None:
                job.network.initialize(self.center, job.dataset.Y, job.seed)
            else:
                self.center[:] = start.params
        self.table[1:] = self.center
        self.learners = [self._learner(job, w, self.table[0 if shared else 1 + w]) for w in self.workers]
        self._started = time.perf_counter()

    def _learner(self, job: Job, w: int, flat: np.ndarray) -> Learner:
        """Return the learner of worker `w`; one alone takes the state of an earlier run over, several copy it."""
        if job.start is None:
            return Learner(job, self.devices[w], flat)
        state = job.start.state if len(self.devices) == 1 else job.start.state.copy()
        return Learner(job, self.devices[w], flat, state, job.start.steps)

    def optimizer_state(self) -> tuple[np.ndarray, int]:
        """Return the state and the steps of the first worker."""
        return self.learners[0].state, self.learners[0].steps

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
