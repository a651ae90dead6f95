"""HTTP connections with limits: one that is idle, sends its head slowly or does not read its answer is cut.

It is cut after a time, or earlier where a new connection needs its room.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 1024  # connections at once
OTHER_FILES = 256  # open files of the process kept free for others than connections
WAIT_SECONDS = 10.0  # limit for the head of a request to arrive, and for a client to read its answer
LINGER_SECONDS = 0.5  # when the server is told to end: time to read requests that have been sent already
LAST_ANSWER = (b"connection", b"close")


class Connection(H11Protocol):
    """A connection that is cut after it has waited `WAIT_SECONDS` for its client.

    If there are too many connections, the one that has waited longest is cut earlier. A connection waits from its
    start, and from the end of each answer, until the head of a request is complete. The application does not see it
    before; its own time limits begin with the head (`requests.BODY_SECONDS`).
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait; if there are too many connections, cut the one that has waited longest."""
        super().connection_made(transport)
        self.limit_concurrency = None  # uvicorn's own answer is plain text, and not in the metrics
        self._wait()
        if len(self.connections) >= self.config.limit_concurrency:
            waiting = [each for each in self.connections if each._timer is not None and each is not self]
            if waiting:  # else the application answers the request with 503
                min(waiting, key=lambda each: each._timer.when())._cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read what has arrived; stop waiting if it completes a head."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Begin to wait for the next head, unless it has come already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._wait()

    def shutdown(self) -> None:
        """End after the next answer, which tells the client that it is the last one; without a request, end soon."""
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
        """Close at once, even if something is not sent yet."""
        self._stop_waiting()
        self.connections.discard(self)
        self.transport.abort()


def most_connections() -> int:
    """Raise the soft limit of open files; return how many connections it then allows, at most `MAX_CONNECTIONS`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(min(MAX_CONNECTIONS, soft - OTHER_FILES), 2)
