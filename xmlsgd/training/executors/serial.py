"""Everything in this process, one step at a time, on the wall clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from ..learner import Learner
from ..messages import Sharing
from ..shared_parameters import Table
from .wall_clock import OnWallClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...devices.base import Device
    from ..learner import Job
    from ..messages import Event, Step
    from ..shared_parameters import Shape


class Serial(OnWallClock):
    """Workers in turn, one for each device; steps run when they are waited for, in the order of submission.

    A shared model is updated in place; it goes on in the arrays of an earlier run (`Job.start`).
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        super().__init__(len(devices))
        self.devices = devices
        self._queue: deque[Step] = deque()

    def start(self, job: Job, sharing: Sharing) -> None:
        """Make the table and one learner a device."""
        if sharing is Sharing.DELTA:
            sharing = Sharing.IN_PLACE  # nobody writes between a step's reading and its writing

        def make(shape: Shape) -> Table:
            if job.start is None or sharing is Sharing.REPLICAS:
                return Table.in_memory(shape)
            marks = np.zeros((1, shape.marks), np.uint8)
            return Table(job.start.params.reshape(1, -1), job.start.state.reshape(1, -1), marks)

        self._prepare(job, sharing, make)
        self.learners = [Learner.of(job, self.devices[w], self.table, w, sharing, lazy=True) for w in self.workers]
        self.model.employ(self.learners)
        self._start_clock()

    def _begin(self, step: Step) -> None:
        self._queue.append(step)

    def _next(self, until: float | None) -> Event:
        step = self._queue.popleft()
        self.count.begins(step.worker)
        if not self.model.own_states and len(self.learners) > 1:  # one model, which others may have in their memory
            self.model.bring()
            self.model.outdate([step.worker])
        return self.learners[step.worker].step(step)

    def close(self) -> None:
        """Drop what was queued."""
        self._queue.clear()
        self.busy.clear()
