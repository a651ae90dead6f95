"""What the server refuses, and what it answers when something goes wrong."""

from __future__ import annotations

import asyncio
import random

import pytest

pytest.importorskip("starlette", reason='needs the extra "serve"')
pytest.importorskip("httpx2", reason="needs httpx2, of which starlette makes its client")

from starlette.testclient import TestClient

from shared.malformed_bodies import malformed
from shared.served import AUTHORIZED, SUGGEST
from xmlsgd.errors import ModelFileError
from xmlsgd.serving import app, requests, service
from xmlsgd.serving.app import new_app
from xmlsgd.serving.service import ServedModel, Service


def test_an_error_of_the_model_in_prediction_is_no_conflict(client, served, monkeypatch):
    def fail(*_):
        raise ModelFileError("the model's folder is damaged")

    monkeypatch.setattr(served, "suggest", fail)
    answer = client.post("/suggest", json={"texts": ["read a file"]})
    assert answer.status_code == 500
    assert "internal error: ModelFileError" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"texts": "one"}, "texts: must be a list of 1 to 1024 strings, got 'one'"),
        ({"texts": []}, "texts: must be a list of 1 to 1024 strings, got []"),
        ({"texts": ["a", 1]}, "texts: must be a list of 1 to 1024 strings, got ['a', 1]"),
        (
            {"texts": ["a"], "treshold": 0.5},
            "body: must have no fields but texts, limit, threshold, got 'treshold'; did you mean 'threshold'?",
        ),
        ({"texts": ["a"], "k": 5}, "body: must have no fields but texts, limit, threshold, got 'k'"),
        ({"texts": ["a"], "limit": 0}, "limit: must be an integer from 1 to 1000, got 0"),
        ({"texts": ["a"], "limit": True}, "limit: must be an integer from 1 to 1000, got True"),
        ({"texts": ["a"], "limit": "many"}, "limit: must be an integer from 1 to 1000, got 'many'"),
        ({"texts": ["a"], "threshold": 2}, "threshold: must be a number from 0 to 1 or 'micro', got 2"),
        ({"texts": ["a"] * 1000, "limit": 101}, "limit: must be an integer from 1 to 100 for 1000 texts, got 101"),
        ([1], "body: must be a JSON object, got [1]"),
    ],
)
def test_a_wrong_field_is_named(client, body, detail):
    answer = client.post("/suggest", json=body)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {"status": 400, "title": "Bad Request", "detail": detail}


def test_a_text_that_would_keep_all_others_waiting_is_refused(client, served):
    form, lines = f"/v1/projects/{served.name}/suggest", "read " * (1 << 16)
    texts = {"json": {"texts": ["a", lines]}}, {"json": {"text": lines}}, {"data": {"text": lines}}
    fields = ("/suggest", "texts"), ("/explain", "text"), (form, "text")
    for (path, field), body in zip(fields, texts, strict=True):
        answer = client.post(path, **body)
        expected = f"{field}: a text must have at most 262,144 characters, got 327,680; send its beginning"
        assert (answer.status_code, answer.json()["detail"]) == (400, expected)
    assert client.post("/suggest", json={"texts": [lines[: 1 << 18]]}).status_code == 200


def test_bodies_that_are_too_large_too_slow_or_of_another_type_are_refused(client, monkeypatch):
    monkeypatch.setattr(requests, "MAX_BYTES", 100)
    large = client.post("/suggest", json={"texts": ["a" * 100]})
    assert (large.status_code, large.json()["detail"]) == (413, "body: must have at most 100 bytes; send fewer texts")
    assert client.post(SUGGEST, json={"text": "a"}).status_code == 415
    assert client.post("/suggest", data={"text": "a"}).status_code == 415
    packed = client.post("/suggest", content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    detail = "Content-Encoding: must be absent, got 'gzip'; send an uncompressed body"
    assert (packed.status_code, packed.json()["detail"]) == (415, detail)
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.0)
    slow = client.post("/suggest", json={"texts": ["a"]})
    assert (slow.status_code, slow.json()["detail"]) == (408, "body: must arrive within 0 s; send fewer texts")


def test_explanations_have_few_labels_as_each_has_all_words(client):
    answer = client.post("/explain", json={"text": "a", "limit": 51})
    assert (answer.status_code, answer.json()["detail"]) == (400, "limit: must be an integer from 1 to 50, got 51")


def test_bodies_that_are_held_at_once_are_limited_together(client, monkeypatch):
    for _ in range(3):  # what is answered is held no more
        monkeypatch.setattr(requests, "MAX_PENDING_BYTES", 100)
        assert client.post("/suggest", json={"texts": ["a" * 50]}).status_code == 200
        answer = client.post("/suggest", json={"texts": ["a" * 100]})
        assert answer.status_code == 503
        assert answer.json()["detail"] == "server busy: too many requests wait for answers; try again later"


def test_a_client_that_leaves_is_no_error_of_the_server(served, caplog):
    """Its request has half a body."""
    sent, received = [], [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    scope = {"type": "http", "method": "POST", "path": "/suggest", "query_string": b"", "headers": []}

    async def receive():
        return received.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(new_app(served)(scope, receive, send))
    assert sent[0]["status"] == 400
    assert caplog.text == ""


def test_refusals_say_what_would_do_in_their_headers(client):
    assert client.get("/suggest").headers["allow"] == "POST"
    assert client.post("/learn", json={}).headers["www-authenticate"] == "Bearer"


def test_an_answer_that_takes_too_long_is_given_up(model, monkeypatch):
    monkeypatch.setattr(app, "ANSWER_SECONDS", 0.0)
    with TestClient(new_app(Service(ServedModel(model), "words"))) as client:
        answer = client.post("/suggest", json={"texts": ["a"]})
    assert (answer.status_code, answer.json()["title"]) == (503, "Service Unavailable")


def test_an_error_of_the_model_is_answered_and_logged(client, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(service, "_suggest", broken)
    answer = client.post("/suggest", json={"texts": ["a"]})
    assert answer.status_code == 500
    assert "deep inside" not in answer.text
    assert "ZeroDivisionError: deep inside" in caplog.text
    monkeypatch.undo()
    assert client.post("/suggest", json={"texts": ["a"]}).status_code == 200


def test_malformed_bodies_get_an_error_in_json_and_the_server_answers_on(client):
    rng = random.Random(0)
    seen = set()
    for _ in range(400):
        body, media_type = malformed(rng)
        path = rng.choice(["/suggest", "/explain", "/learn", SUGGEST])
        headers = {**AUTHORIZED, **({} if media_type is None else {"Content-Type": media_type})}
        answer = client.post(path, content=body, headers=headers)
        seen.add(answer.status_code)
        if answer.status_code != 200:  # what is left of a valid form is answered
            found = answer.json()
            assert found["status"] == answer.status_code
            assert found["detail"]
            assert "Traceback" not in found["detail"]
    assert {400, 415} <= seen <= {200, 400, 415}
    assert client.post("/suggest", json={"texts": ["read"]}).status_code == 200
