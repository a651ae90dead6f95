"""Real arithmetic on a simulated clock: a heap of events, with durations from a cost model.

A span is computed when it is submitted, on the model of that moment, and takes effect when its simulated duration is
over, so that staleness follows from the durations. Nothing depends on the wall clock: runs are reproducible to the bit.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count

from ...devices.base import Device
from ...errors import WorkerDied
from ..job import Job
from ..messages import Event, Joined, Left, Report, Sharing, Span
from .base import Executor
from .virtual_device import VirtualDevice, span_noise


class Simulated(Executor):
    """Workers on virtual devices; one real `device` computes the spans of all.

    bandwidth : bytes per second that merges, pulls and pushes read and write. seed : of the noise of durations.
    """

    def __init__(self, device: Device, fleet: Sequence[VirtualDevice], bandwidth: float = 2e10, seed: int = 0) -> None:
        super().__init__(len(fleet))
        self.device, self.fleet, self.bandwidth, self.seed = device, fleet, bandwidth, seed
        self.n_threads = device.n_threads
        self._events: list[tuple[float, int, Event]] = []

    @property
    def expects_workers(self) -> bool:
        """Whether a worker has yet to join."""
        return any(isinstance(event, Joined) for _, _, event in self._events)

    def start(self, job: Job, sharing: Sharing) -> None:
        """Make shared parameters and learners, and schedule the absences; an absence from second 0 is a late join."""
        alone = len(self.fleet) == 1
        # Workers of a shared model step on copies of it.
        self._prepare(job, [sharing.for_worker(alone or device.in_place) for device in self.fleet], copies=True)
        self._make_learners(job, [self.device] * len(self.fleet))
        self._time, self._serial, self._n_spans = 0.0, count(), [0] * len(self.fleet)
        self._ready = [0.0] * len(self.fleet)  # when a worker that merged while others worked can go on
        self._free = 0.0  # when the coordinator, which does one thing after the other, is free
        self._flying: dict[int, int] = {}  # worker -> number of the event that ends its span
        for w, device in enumerate(self.fleet):
            for begin, end in device.absent:
                if begin > 0:
                    self._schedule(begin, Left(w, "absent"))
                else:
                    self.workers.remove(w)
                if end < math.inf:
                    self._schedule(end, Joined(w))

    def _begin(self, span: Span) -> None:
        w = span.worker
        report = self.learners[w].train_span(span)
        noise = span_noise(self.seed, w, self._n_spans[w])
        self._n_spans[w] += 1
        begun = max(self._time, self._ready[w])
        seconds = self.fleet[w].seconds(begun, report.rows, report.nnz, report.updates, noise)
        self._flying[w] = self._schedule(begun + seconds, replace(report, seconds=seconds))

    def _next(self, until: float | None) -> Event | None:
        while True:
            if not self._events:
                raise WorkerDied("no worker is left: all devices of the fleet are away, and none returns")
            if until is not None and self._events[0][0] > until:
                self._time = max(self._time, until)
                return None
            at, number, event = heapq.heappop(self._events)
            self._time = max(self._time, at)  # a merge may have taken until after it
            if isinstance(event, Left):
                self._flying.pop(event.worker, None)
            elif isinstance(event, Report) and self._flying.get(event.worker) != number:
                continue  # the worker left before the end
            return event

    def _charge(self, workers: Collection[int], n_bytes: int, begun: float) -> float:
        """Let `workers` wait until the coordinator has moved the bytes; return the seconds."""
        seconds = n_bytes / self.bandwidth
        self._free = max(self._free, self._time) + seconds
        if self.busy:
            for w in workers:
                self._ready[w] = self._free
        else:
            self._time = self._free
        return seconds

    def now(self) -> float:
        """Return the seconds of the simulated clock."""
        return self._time

    def close(self) -> None:
        """Drop scheduled events."""
        self._events.clear()
        self.busy.clear()

    def _schedule(self, at: float, event: Event) -> int:
        """Put an event on the heap; simultaneous events keep the order in which they were scheduled."""
        number = next(self._serial)
        heapq.heappush(self._events, (at, number, event))
        return number
