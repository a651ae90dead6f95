"""Streams and events of a GPU that is not there: work is done at once, or as late as waiting for it allows.

What is done late shows a missing wait: a copy that reads memory which the process has written again, a kernel that
finds the next batch where its own should be. Captured work is not done at all, until its graph is launched.
"""

from __future__ import annotations

import threading
from collections import deque


class _Entered(threading.local):
    """The streams that a thread has entered, of all devices, and the numbers of the devices, as CuPy keeps them."""

    def __init__(self):
        self.streams, self.devices = [], [0]


ENTERED = _Entered()


class Streams:
    """The streams of a "GPU", by number; those in `late` do their work late."""

    def __init__(self, late=()):
        self.late, self.all, self.memory = late, [], None

    def make(self, *, non_blocking):
        """Return a new stream."""
        self.all.append(Stream(self, len(self.all)))
        return self.all[-1]

    def here(self):
        """Return the stream that this thread entered last; `RuntimeError` where CuPy would take one of its own."""
        if not ENTERED.streams:
            raise RuntimeError("work for the GPU on no stream of a device")
        return ENTERED.streams[-1]


class Stream:
    """A stream: its work is done in order."""

    def __init__(self, streams, number):
        self.ptr, self._streams, self._late = number, streams, number in streams.late
        self.device = ENTERED.devices[-1]
        self._work, self.done, self._captured = deque(), 0, None

    def __enter__(self):
        assert self.device == ENTERED.devices[-1], "the stream is of another device than the current one"
        ENTERED.streams.append(self)

    def __exit__(self, *error):
        ENTERED.streams.pop()

    @property
    def capturing(self):
        """Return whether work goes into a graph."""
        return self._captured is not None

    def do(self, work):
        """Do work, or keep it until it is waited for, or for a graph."""
        if self.capturing:
            self._captured.append(work)
            return
        self._work.append(work)
        if not self._late:
            self.synchronize()

    def allocate(self):
        """Raise `RuntimeError` under capture: a replay would write what others have been given by then."""
        self._forbid("memory is taken")

    def given(self):
        """Return how much work there has been."""
        return self.done + len(self._work)

    def synchronize(self, until=None):
        """Do what has been kept, or the first `until` of all."""
        self._forbid("a stream is waited for")
        while self._work and (until is None or self.done < until):
            self.done += 1
            self._work.popleft()()

    def wait_event(self, event):
        """Let what follows wait for what an event has seen so far."""
        self._forbid("a stream waits for another")
        seen = event.seen
        self.do(lambda: [stream.synchronize(until) for stream, until in seen])

    def begin_capture(self):
        """Keep work for a graph from now on."""
        assert not self.capturing
        self._captured = []

    def end_capture(self):
        """Return the graph of the work since."""
        work, self._captured = self._captured, None
        return Graph(self._streams, work)

    def is_capturing(self):
        """Return whether work goes into a graph."""
        return self.capturing

    def _forbid(self, what):
        if self.capturing:
            raise RuntimeError(f"{what} while a graph is captured")


class Graph:
    """Captured work."""

    def __init__(self, streams, work):
        self._streams, self.work = streams, work

    def launch(self, stream=None):
        """Do it all once more, on a stream, by default the current one."""
        for work in self.work:
            (stream or self._streams.here()).do(work)


class Event:
    """An event: `seen` is a stream and how much work it had been given, or nothing."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.seen: tuple[tuple[Stream, int], ...] = ()

    def record(self, stream):
        stream._forbid("an event is recorded")
        self.seen = ((stream, stream.given()),)

    def synchronize(self):
        for stream, until in self.seen:
            stream.synchronize(until)
