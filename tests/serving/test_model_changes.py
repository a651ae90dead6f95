"""Requests that are under way while another model is loaded."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

pytest.importorskip("starlette", reason='needs the extra "serve"')

from shared.served import SUGGEST
from xmlsgd.serving import service
from xmlsgd.serving.app import new_app
from xmlsgd.serving.service import ServedModel, Service


async def ask(app, path, body):
    """Send a request; return the answer."""
    sent, answer = [{"type": "http.request", "body": body, "more_body": False}], []
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}

    async def receive():
        return sent.pop() if sent else await asyncio.Event().wait()

    async def send(message):
        answer.append(message)

    await app(scope, receive, send)
    return json.loads(answer[1]["body"])


@pytest.mark.parametrize(
    ("path", "body", "computes"),
    [
        ("/suggest", b'{"texts": ["read json"], "limit": 1}', "_suggest"),
        ("/explain", b'{"text": "read json", "limit": 1}', "_explain"),
        (SUGGEST, b"text=read+json&limit=1", "_suggest"),
    ],
)
def test_an_answer_has_the_uris_of_the_vocabulary_that_belongs_to_its_model(model, monkeypatch, path, body, computes):
    works, may_end, compute = threading.Event(), threading.Event(), getattr(service, computes)

    def slow(*arguments):
        works.set()
        may_end.wait()
        return compute(*arguments)

    monkeypatch.setattr(service, computes, slow)
    old, new = (ServedModel(model, {f"http://{name}/{e}": e for e in model.classes_}) for name in ("old", "new"))

    async def scenario():
        served = Service(old, "words")
        asked = asyncio.create_task(ask(new_app(served), path, body))
        await asyncio.to_thread(works.wait)
        await served.reload(lambda: new)
        may_end.set()
        return await asked

    assert "http://old/" in str(asyncio.run(scenario())["results"])
