"""All workers in this process, one span at a time, on the wall clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from ...devices.base import Device
from ..job import Job
from ..messages import Event, Sharing, Span
from ..shared_parameters import SharedParameters, SharedShape
from .base import Executor


class Serial(Executor):
    """Workers that take turns, one for each device; `wait` runs the next span in the order of submission.

    A shared model is updated in place, in the arrays of the earlier run if there is one (`Job.start`).
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        super().__init__(len(devices))
        self.devices = devices
        self._queue: deque[Span] = deque()

    def start(self, job: Job, sharing: Sharing) -> None:
        """Make the shared parameters and one learner for each device."""
        replicas = sharing is Sharing.REPLICAS  # else in place: nobody else writes during a span, so no copy is needed
        self._prepare(job, [sharing if replicas else Sharing.IN_PLACE] * len(self.devices))
        self._make_learners(job, self.devices)
        self.learners[0].pending_losses = not replicas and len(self.learners) == 1
        self._start_clock()

    def _make_shared(self, job: Job, shape: SharedShape) -> SharedParameters:
        if job.start is None or shape.replicas:
            return super()._make_shared(job, shape)
        marks = np.zeros((1, shape.marks), np.uint8)
        return SharedParameters(job.start.params.reshape(1, -1), job.start.state.reshape(1, -1), marks)

    def _begin(self, span: Span) -> None:
        self._queue.append(span)

    def _next(self, until: float | None) -> Event:
        span = self._queue.popleft()
        self._reads_model(span.worker)
        if not self._has_replicas and len(self.learners) > 1:  # the model may be on the device of another learner
            self._fetch()
            self._invalidate([span.worker])
        return self.learners[span.worker].train_span(span)

    def close(self) -> None:
        """Drop queued spans."""
        self._queue.clear()
        self.busy.clear()
