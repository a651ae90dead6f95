"""Which texts of waiting requests a call of the model takes."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("starlette", reason='needs the extra "serve"')

from shared.served import TEXTS, expected
from xmlsgd.serving import service
from xmlsgd.serving.service import ServedModel, Service


@pytest.fixture
def calls(monkeypatch):
    """The texts of each call of the model, which takes at most eight short ones."""
    taken = []
    compute = service._suggest

    def noted(model, texts, *arguments):
        taken.append(texts)
        return compute(model, texts, *arguments)

    monkeypatch.setattr(service, "_suggest", noted)
    monkeypatch.setattr(service, "MAX_CALL_COST", 8400)
    monkeypatch.setattr(service, "TEXT_COST", 1000)
    return taken


def answered(model, *requests, later=()):
    """Return the answers to requests, pairs of texts and limit, and in which order they came.

    later : requests that come while the first call is computed.
    """

    async def scenario():
        served, order = ServedModel(model), []
        server = Service(served, "words")

        async def ask(number, texts, limit):
            found = await server.suggest(served, texts, limit)
            order.append(number)
            return found

        asked = [asyncio.create_task(ask(number, *request)) for number, request in enumerate(requests)]
        while not server.metrics.counts["batches"]:
            await asyncio.sleep(0)
        asked += [asyncio.create_task(ask(number, *request)) for number, request in enumerate(later, len(requests))]
        return await asyncio.gather(*asked), order

    return asyncio.run(scenario())


def test_a_single_text_does_not_wait_for_large_requests_and_all_get_the_same_suggestions(model, calls):
    large, single = (TEXTS, 3), (["read json"], 3)
    found, order = answered(model, large, large, large, later=[single])
    assert order == [3, 0, 1, 2]
    assert [len(texts) for texts in calls] == [8] * 9 + [1]
    assert "read json" in calls[1]
    for (texts, k), rows in zip([large, large, large, single], found, strict=True):
        assert rows == [[(each["label"], each["score"]) for each in row] for row in expected(model, texts, k)]


def test_a_single_text_of_another_limit_is_in_the_next_call(model, calls):
    _, order = answered(model, (TEXTS, 3), (TEXTS, 3), later=[(["read json"], 2)])
    assert order == [2, 0, 1]
    assert calls[1] == ["read json"]


def test_a_large_request_has_every_other_call_however_many_limits_others_ask_for(model, calls):
    _, order = answered(model, (["a file"] * 24, 30), later=[(["read json"] * 2, k) for k in range(1, 20)])
    assert [texts[0] for texts in calls[:5]] == ["a file", "read json", "a file", "read json", "a file"]
    assert order.index(0) == 3


def test_a_large_request_advances_however_many_small_ones_wait(model, calls):
    _, order = answered(model, (["a file"] * 16, 3), later=[(["read json"], 3)] * 40)
    assert calls[0] == ["a file"] * 8
    assert calls[1] == calls[2] == ["a file"] * 4 + ["read json"] * 4
    assert order.index(0) <= 8


def test_a_call_has_few_long_texts_and_one_that_would_fill_it_leaves_half_to_others(model, calls):
    answered(model, (["a" * 1700] * 3, 3), (["b" * 10_000] * 2, 3), (["c"], 3))
    assert [[text[0] for text in texts] for texts in calls] == [["a", "a", "c"], ["a", "b"], ["b"]]


def test_all_texts_of_a_request_are_answered_by_one_model(model, calls):
    async def scenario():
        served = ServedModel(model)
        server = Service(served, "words")
        asked = [asyncio.create_task(server.suggest(served, TEXTS, 3))]
        while not calls:
            await asyncio.sleep(0)
        learned = service._learn_on_copy(model, ["read json"] * 50, [["new"]] * 50)
        await server.reload(lambda: ServedModel(learned))
        asked.append(asyncio.create_task(server.suggest(server.served, ["read json"], 3)))
        return await asyncio.gather(*asked)

    large, (after,) = asyncio.run(scenario())
    assert "new" not in {name for row in large for name, _ in row}
    assert "new" in {name for name, _ in after}


def test_after_an_error_of_the_model_the_rest_of_a_request_is_not_computed(model, monkeypatch):
    monkeypatch.setattr(service, "MAX_CALL_COST", 1000)
    monkeypatch.setattr(service, "_suggest", lambda *_: 1 / 0)

    async def scenario():
        served = ServedModel(model)
        server = Service(served, "words")
        with pytest.raises(ZeroDivisionError):
            await server.suggest(served, TEXTS, 3)
        return server._waiting, server.metrics.counts["batches"]

    assert asyncio.run(scenario()) == ([], 1)
