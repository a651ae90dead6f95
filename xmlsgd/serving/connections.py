"""HTTP connections that nobody can hold: idle ones, slow heads and unread answers end after a time, or for others."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 1024  # connections at once
OTHER_FILES = 256  # that the process may have open beside its connections
WAIT_SECONDS = 10.0  # for the head of a request, and for a client to read its answer
LINGER_SECONDS = 0.5  # for requests that have been sent, but not read, when the server is told to end
LAST_ANSWER = (b"connection", b"close")


class Connection(H11Protocol):
    """A connection that is cut if it waits too long for its client, or the longest where there are too many.

    It waits from its start, and from the end of each answer, until the head of a request is complete. Meanwhile the
    application has no part in it, whose own limits of time begin with the head (`requests.BODY_SECONDS`).
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait; where all connections are taken, cut the one that has waited longest."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) >= self.config.limit_concurrency:
            waiting = [each for each in self.connections if each._timer is not None and each is not self]
            if waiting:  # else the request is answered with 503
                min(waiting, key=lambda each: each._timer.when())._cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read what has arrived; wait no longer where it holds a head."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next head, if it has not come already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._wait()

    def shutdown(self) -> None:
        """End after the next answer, which says that it is the last one, or without one if nothing is asked."""
        if LAST_ANSWER not in self.server_state.default_headers:
            self.server_state.default_headers = [*self.server_state.default_headers, LAST_ANSWER]
        if self.cycle is not None:
            self.cycle.default_headers = self.server_state.default_headers
        self.loop.call_later(LINGER_SECONDS, self._end)

    def _end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def _wait(self) -> None:
        self._timer = self.loop.call_later(WAIT_SECONDS, self._cut)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        """Close at once, whatever is not sent yet."""
        self._stop_waiting()
        self.connections.discard(self)
        self.transport.abort()


def most_connections() -> int:
    """Return how many connections the open files of the process allow, `MOST` at most; raise their soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST if soft == resource.RLIM_INFINITY else max(min(MOST, soft - OTHER_FILES), 2)
