"""One thread per worker in this process; the kernels release the GIL.

A worker that raises an error is lost for the run: after an error of CUDA its GPU is of no more use to this process.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from ...devices.base import Device
from ...errors import in_one_line
from ..job import Job
from ..learner import Learner
from ..messages import Event, Sharing, Span
from .base import Executor


class Threads(Executor):
    """Workers that run concurrently, one for each device. Devices of one thread each overlap best."""

    concurrent = True

    def __init__(self, devices: Sequence[Device]) -> None:
        super().__init__(len(devices))
        self.devices = devices
        self._threads: list[threading.Thread] = []
        self._inboxes: list[queue.SimpleQueue[Span | None]] = []

    def start(self, job: Job, sharing: Sharing) -> None:
        """Make the shared parameters, and one learner and one thread for each device."""
        by_worker = [sharing.for_worker(device.memory is None) for device in self.devices]
        self._prepare(job, by_worker)
        self._done: queue.SimpleQueue[Event | tuple[int, BaseException]] = queue.SimpleQueue()
        self._inboxes = [queue.SimpleQueue() for _ in self.workers]
        self._make_learners(job, self.devices)
        for w, (learner, inbox) in enumerate(zip(self.learners, self._inboxes, strict=True)):
            thread = threading.Thread(target=self._work, args=(w, learner, inbox), daemon=True)
            thread.start()
            self._threads.append(thread)
        self._start_clock()

    def _work(self, w: int, learner: Learner, inbox: queue.SimpleQueue[Span | None]) -> None:
        """Run the spans of one worker until the inbox yields None; pass an error on to `_next`."""
        try:
            with learner.device.start():
                while (span := inbox.get()) is not None:
                    self._done.put(learner.train_span(span))
        except BaseException as error:  # noqa: BLE001  the worker counts as lost
            self._done.put((w, error))

    def _begin(self, span: Span) -> None:
        self._inboxes[span.worker].put(span)

    def _next(self, until: float | None) -> Event | None:
        try:
            event = self._done.get(timeout=None if until is None else max(until - self.now(), 0.0))
        except queue.Empty:
            return None
        if isinstance(event, tuple):
            w, error = event
            self._record_error(w, error, self.workers)
            return self._lost_worker(w, in_one_line(error))
        return event

    def close(self) -> None:
        """Let the workers finish their spans, and end the threads."""
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.busy.clear()
