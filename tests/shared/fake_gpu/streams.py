"""Streams and events of a GPU that is not there: work is done at once, or as late as waiting for it allows.

What is done late shows a missing wait: a copy that reads memory which the process has written again, a kernel that
finds the next batch where its own should be.
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

    def make(self, *, non_blocking, priority=0):
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
        self._work, self.done = deque(), 0

    def __enter__(self):
        assert self.device == ENTERED.devices[-1], "the stream is of another device than the current one"
        ENTERED.streams.append(self)

    def __exit__(self, *error):
        ENTERED.streams.pop()

    def do(self, work):
        """Do work, or keep it until it is waited for."""
        self._work.append(work)
        if not self._late:
            self.synchronize()

    def given(self):
        """Return how much work there has been."""
        return self.done + len(self._work)

    def synchronize(self, until=None):
        """Do what has been kept, or the first `until` of all."""
        while self._work and (until is None or self.done < until):
            self.done += 1
            self._work.popleft()()

    def wait_event(self, event):
        """Let what follows wait for what an event has seen so far."""
        seen = event.seen
        self.do(lambda: [stream.synchronize(until) for stream, until in seen])


class Event:
    """An event: `seen` is a stream and how much work it had been given, or nothing."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.seen: tuple[tuple[Stream, int], ...] = ()

    def record(self, stream):
        self.seen = ((stream, stream.given()),)

    def synchronize(self):
        for stream, until in self.seen:
            stream.synchronize(until)
