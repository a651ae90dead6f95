"""Connections of the server: which are cut, and when; timers fire at once where the limit of time is 0."""

from __future__ import annotations

import asyncio
import resource

import pytest

pytest.importorskip("uvicorn", reason='needs the extra "serve"')

from uvicorn import Config
from uvicorn.server import ServerState

from xmlsgd.serving import connections
from xmlsgd.serving.app import new_app
from xmlsgd.serving.connections import MAX_CONNECTIONS, OTHER_FILES, Connection, most_connections

LIMIT = 3
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


class Transport:
    """A transport that keeps what is written."""

    def __init__(self):
        self.written, self.aborted, self.closed = b"", False, False

    def get_extra_info(self, name):
        return None

    def write(self, data):
        self.written += data

    def abort(self):
        self.aborted = True

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.aborted or self.closed

    def pause_reading(self):
        pass

    resume_reading = pause_reading


def in_a_loop(scenario, app=None):
    """Run a scenario that is given a function which opens connections to `app`."""

    async def run():
        config = Config(app, http=Connection, limit_concurrency=LIMIT, lifespan="off", log_config=None)
        state = ServerState()

        def opened():
            connection = Connection(config, state, {}, asyncio.get_running_loop())
            connection.connection_made(Transport())
            return connection

        await scenario(opened)

    asyncio.run(run())


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("sent", [b"", b"POST / HT", HEAD[:-2]], ids=["nothing", "part of a line", "part of a head"])
def test_a_connection_without_a_whole_head_is_cut_in_time(monkeypatch, sent):
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.0)

    async def scenario(opened):
        connection = opened()
        if sent:
            connection.data_received(sent)
        assert not connection.transport.aborted
        await turns()
        assert connection.transport.aborted
        assert not connection.connections

    in_a_loop(scenario)


async def answering(scope, receive, send):
    """Answer before the body is whole, as to a request that is too large."""
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


async def silent(scope, receive, send):
    await asyncio.Event().wait()


def test_a_connection_is_not_cut_while_its_request_is_answered(monkeypatch):
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.0)

    async def scenario(opened):
        connection = opened()
        connection.data_received(HEAD)
        await turns()
        assert not connection.transport.aborted

    in_a_loop(scenario, silent)


def test_a_body_that_trickles_on_after_the_answer_does_not_hold_the_connection(monkeypatch):
    async def scenario(opened):
        connection = opened()
        connection.data_received(HEAD)
        monkeypatch.setattr(connections, "WAIT_SECONDS", 0.0)
        for _ in range(3):
            await turns()
            connection.data_received(b"a")
        assert b"413" in connection.transport.written
        assert connection.transport.aborted

    in_a_loop(scenario, answering)


def test_the_connection_that_waits_longest_gives_way_to_another():
    async def scenario(opened):
        busy, idle = opened(), opened()
        busy.data_received(HEAD)
        newest = opened()
        assert [each.transport.aborted for each in (busy, idle, newest)] == [False, True, False]
        assert len(newest.connections) == LIMIT - 1

    in_a_loop(scenario, silent)


def test_of_two_idle_connections_the_earlier_one_gives_way():
    async def scenario(opened):
        opened_in_order = [opened() for _ in range(LIMIT)]
        assert [each.transport.aborted for each in opened_in_order] == [True, False, False]

    in_a_loop(scenario)


def test_at_the_end_requests_are_answered_that_clients_have_sent_already_and_told_that_none_may_follow():
    async def scenario(opened):
        asked, asks = opened(), opened()
        asked.data_received(HEAD)
        for connection in (asked, asks):
            connection.shutdown()
        asks.data_received(HEAD)
        await turns()
        for connection in (asked, asks):
            assert connection.transport.written.startswith(b"HTTP/1.1 413 ")
            assert connection.transport.written.count(b"connection: close") == 1
            assert connection.transport.closed

    in_a_loop(scenario, answering)


def test_at_the_end_a_connection_without_a_request_is_closed_in_time(monkeypatch):
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.0)

    async def scenario(opened):
        idle, gone = opened(), opened()
        for connection in (idle, gone):
            connection.shutdown()
        gone.transport.abort()
        await turns()
        assert (idle.transport.closed, gone.transport.closed) == (True, False)

    in_a_loop(scenario)


def test_where_all_connections_are_busy_a_request_is_answered_that_the_server_is(served):
    head = HEAD.replace(b"/", b"/suggest", 1)

    async def scenario(opened):
        busy = [opened() for _ in range(LIMIT - 1)]
        for connection in busy:
            connection.data_received(head)
        newest = opened()
        newest.data_received(head)
        await turns()
        assert newest.transport.written.startswith(b"HTTP/1.1 503 ")
        assert b'"detail":"server busy: too many requests wait for answers; ' in newest.transport.written
        assert newest.transport.closed
        assert not any(connection.transport.written or connection.transport.aborted for connection in busy)
        assert 'xmlsgd_requests_total{path="/suggest",status="503"} 1' in served.metrics.text().splitlines()
        busy[0].data_received(b"wrong")
        await turns()
        assert busy[0].transport.written.startswith(b"HTTP/1.1 400 ")

    in_a_loop(scenario, new_app(served, LIMIT))


@pytest.mark.parametrize(
    ("limits", "expected", "raised"),
    [
        ((4096, 4096), MAX_CONNECTIONS, None),
        ((1024, 1 << 20), MAX_CONNECTIONS, MAX_CONNECTIONS + OTHER_FILES),
        ((256, 1024), 1024 - OTHER_FILES, 1024),
        ((1024, resource.RLIM_INFINITY), MAX_CONNECTIONS, MAX_CONNECTIONS + OTHER_FILES),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), MAX_CONNECTIONS, None),
    ],
)
def test_connections_are_as_many_as_open_files_allow(monkeypatch, limits, expected, raised):
    set_to = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: set_to.append(given))
    assert most_connections() == expected
    assert set_to == ([] if raised is None else [(raised, limits[1])])
