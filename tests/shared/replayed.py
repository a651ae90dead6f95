"""A run over worker processes that is recorded, and done again in lockstep: the same events at the same times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xmlsgd.training.executors.base import Executor
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.learner import Learner
from xmlsgd.training.messages import Report


class Recorded(Processes):
    """Keeps the events and what the clock said; at the end of the run also copies of the states."""

    waiting = True  # before the run, and in `_next`, where nobody but the executor asks for the time

    def start(self, job, sharing):
        super().start(job, sharing)
        self.events, self.times, self.waiting = [], [], False

    def now(self):
        now = super().now()
        if not self.waiting:
            self.times.append(now)
        return now

    def _next(self, until):
        self.waiting = True
        event = super()._next(until)
        self.waiting = False
        self.events.append(event)
        return event

    def close(self):
        if hasattr(self, "shared"):
            self.kept = np.array(self.shared.states)
        super().close()


class Replayed(Executor):
    """Runs every step in this process when it is submitted, whole, and reports as `recorded` did."""

    def __init__(self, recorded, device):
        super().__init__(recorded.n_workers)
        self.recorded, self.device = recorded, device
        self.events, self.times = iter(recorded.events), iter(recorded.times)

    @property
    def expects_workers(self):
        return True

    def start(self, job, sharing):
        self._prepare(job, self.recorded.sharing_of)
        self.learners = [Learner.of(job, self.device, self.shared, rows) for rows in self.arrays]
        self.reports = {}

    def now(self):
        return next(self.times)

    def _begin(self, step):
        self.reports[step.worker] = self.learners[step.worker].train_span(step)

    def _next(self, until):
        event = next(self.events)
        if not isinstance(event, Report):
            return event
        report = self.reports.pop(event.worker)
        assert (report.rows, report.loss) == (event.rows, event.loss)
        return replace(report, seconds=event.seconds)

    def close(self):
        self.busy.clear()
