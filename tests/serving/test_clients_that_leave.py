"""Requests whose clients close the connection before they are answered."""

from __future__ import annotations

import asyncio
import threading

import pytest

pytest.importorskip("starlette", reason='needs the extra "serve"')

from shared.served import AUTHORIZED, SUGGEST, TOKEN
from xmlsgd.serving import service
from xmlsgd.serving.app import new_app
from xmlsgd.serving.service import ServedModel, Service


async def ask(app, path, body, leaves):
    """Send a request; return the status of the answer. leaves : set when the client closes the connection."""
    sent, answer = [{"type": "http.request", "body": body, "more_body": False}], []
    headers = [(name.lower().encode(), value.encode()) for name, value in AUTHORIZED.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}

    async def receive():
        if sent:
            return sent.pop()
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        answer.append(message)

    await app(scope, receive, send)
    return answer[0]["status"]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/suggest", b'{"texts": ["read json"]}'), ("/explain", b'{"text": "read json"}'), (SUGGEST, b"text=read+json")],
)
def test_nothing_is_computed_for_a_client_that_has_left(model, monkeypatch, path, body):
    """One that leaves while the model works for another client."""
    computed, works, may_end = [], threading.Event(), threading.Event()

    def compute(*_):
        computed.append(path)
        works.set()
        may_end.wait()
        return [[]] if "suggest" in path else []

    monkeypatch.setattr(service, "_suggest", compute)
    monkeypatch.setattr(service, "_explain", compute)

    async def scenario():
        served, stays, leaves = Service(ServedModel(model), "words"), asyncio.Event(), asyncio.Event()
        app = new_app(served)
        first = asyncio.create_task(ask(app, path, body, stays))
        await asyncio.to_thread(works.wait)
        second = asyncio.create_task(ask(app, path, body, leaves))
        leaves.set()
        assert await second == 499
        may_end.set()
        assert await first == 200
        served._explaining.shutdown()
        return served.metrics.text()

    text = asyncio.run(scenario())
    assert len(computed) == 1
    assert 'status="200"} 1' in text
    assert 'status="499"} 1' in text


def test_what_a_client_that_has_left_sent_to_learn_is_learned(model):
    async def scenario():
        leaves = asyncio.Event()
        leaves.set()
        served = Service(ServedModel(model), "words", TOKEN)
        body = b'{"documents": [{"text": "open it", "labels": ["new"]}]}'
        assert await ask(new_app(served), "/learn", body, leaves) == 200
        return served.model.classes_

    assert "new" in asyncio.run(scenario())
