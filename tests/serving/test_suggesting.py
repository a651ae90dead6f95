"""What the routes of the server answer: suggestions, explanations, descriptions and counts."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone

import pytest

from xmlsgd import XMLClassifier

pytest.importorskip("starlette", reason='needs the extra "serve"')
pytest.importorskip("httpx2", reason="needs httpx2, of which starlette makes its client")

from starlette.testclient import TestClient

from shared.served import AUTHORIZED, SUGGEST, TEXTS, TOKEN, expected
from xmlsgd.serving import service
from xmlsgd.serving.app import new_app
from xmlsgd.serving.request_metrics import RequestMetrics
from xmlsgd.serving.service import ServedModel, Service


def test_a_form_is_answered_as_annif_does(client, model):
    answer = client.post(SUGGEST, data={"text": "read json", "limit": "3"})
    assert answer.status_code == 200
    (found,) = expected(model, ["read json"], 3)
    assert answer.json() == {
        "results": [{"uri": e["label"], "label": e["label"], "notation": None, "score": e["score"]} for e in found]
    }
    least = found[1]["score"]
    assert len(client.post(SUGGEST, data={"text": "read json", "threshold": str(least)}).json()["results"]) == 2


def test_the_threshold_micro_is_that_of_training(client, model):
    (scores,) = model.predict_topk(["read json"], 10, proba=True)[1]
    reached = sum(scores >= model.thresholds_["micro"])
    assert reached < 10
    answer = client.post(SUGGEST, data={"text": "read json", "threshold": "micro"})
    assert len(answer.json()["results"]) == reached
    (found,) = client.post("/suggest", json={"texts": ["read json"], "threshold": "micro"}).json()["results"]
    assert len(found) == reached


def test_a_threshold_is_refused_where_scores_are_not_probabilities():
    texts = ["read a file", "write a file"] * 5
    model = XMLClassifier((4,), loss="softmax", max_epochs=2, random_state=0, n_jobs=1)
    model.fit(texts, [text.split()[0] for text in texts])
    with TestClient(new_app(Service(ServedModel(model), "words"))) as client:
        for threshold in ("micro", 0.5):
            answer = client.post("/suggest", json={"texts": ["read"], "threshold": threshold})
            assert answer.status_code == 400
            assert answer.json()["detail"].startswith("threshold: needs a probability of each label by itself")
        (found,) = client.post("/suggest", json={"texts": ["read"], "threshold": 0}).json()["results"]
    assert len(found) == 2


@pytest.mark.parametrize("encode", [str, lambda text: text.replace("ö", "%C3%B6")])
def test_a_form_may_have_letters_of_utf_8_escaped_or_not(encode):
    texts = ["köp böcker", "sälj böcker"] * 5
    model = XMLClassifier((4,), max_epochs=2, random_state=0, n_jobs=1).fit(texts, [[t.split()[0]] for t in texts])
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = encode("text=köp+böcker&limit=2").encode()
    with TestClient(new_app(Service(ServedModel(model), "words"))) as client:
        answer = client.post(SUGGEST, content=body, headers=headers)
    (found,) = expected(model, ["köp böcker"], 2)
    assert [(each["label"], each["score"]) for each in answer.json()["results"]] == [
        (each["label"], each["score"]) for each in found
    ]


def test_the_last_value_of_a_repeated_form_field_counts(client):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post(SUGGEST, content=b"text=read+json&limit=1&limit=3", headers=headers)
    assert len(answer.json()["results"]) == 3


def test_the_type_of_a_body_counts_in_any_case_and_with_an_encoding(client):
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.post("/suggest", content=b'{"texts": ["read json"]}', headers=headers).status_code == 200


def test_the_project_is_described_as_annif_does_and_others_are_unknown(client):
    description = client.get("/v1/projects/words").json()
    assert (description["project_id"], description["is_trained"]) == ("words", True)
    assert client.get("/v1/projects").json() == {"projects": [description]}
    for answer in (client.get("/v1/projects/other"), client.post("/v1/projects/other/suggest", data={"text": "a"})):
        assert answer.status_code == 404
        assert answer.json()["detail"] == "project: must be 'words', got 'other'"


def test_a_batch_is_answered_text_by_text(client, model):
    texts = ["read json", "open the socket"]
    answer = client.post("/suggest", json={"texts": texts, "limit": 4})
    assert answer.json() == {"results": expected(model, texts, 4)}


def test_a_text_without_a_known_word_gets_no_suggestions(client):
    found = client.post("/suggest", json={"texts": ["", "read json", "unknown words"]}).json()["results"]
    assert [bool(row) for row in found] == [False, True, False]
    assert client.post(SUGGEST, data={"text": "unknown words"}).json() == {"results": []}
    assert client.post("/explain", json={"text": "unknown words"}).json()["results"] == []


def test_excluded_labels_give_way_to_the_next_also_after_learning(model):
    excluded = model.predict_topk(["read json"], 2)[0][0]
    ((*_, third, fourth),) = expected(model, ["read json"], 4)
    document = {"text": "open it", "labels": ["new"]}
    with TestClient(new_app(Service(ServedModel(model, exclude=excluded), "words", TOKEN))) as client:
        assert client.post("/suggest", json={"texts": ["read json"], "limit": 2}).json()["results"] == [[third, fourth]]
        (best,) = client.post("/explain", json={"text": "read json", "limit": 1}).json()["results"]
        assert best["label"] == third["label"]
        client.post("/learn", json={"documents": [document]}, headers=AUTHORIZED)
        found = client.post(SUGGEST, data={"text": "read json", "limit": "100"}).json()["results"]
    names = {each["label"] for each in found}
    assert names == {*model.classes_.tolist(), "new"} - set(model.classes_[excluded])


def test_an_explanation_has_probability_and_words(client, model):
    (best,) = client.post("/explain", json={"text": "read json", "limit": 1}).json()["results"]
    ((own,),) = model.explain(["read json"], k=1)
    assert best == {**json.loads(json.dumps(own.to_dict())), "probability": pytest.approx(best["probability"])}
    assert best["probability"] == pytest.approx(expected(model, ["read json"], 1)[0][0]["score"])


def test_suggestions_have_uris_and_learning_takes_them_where_there_is_a_vocabulary(model):
    served = Service(ServedModel(model, {"http://x/1": "json", "http://x/2": "open <http://x/2>"}), "words", TOKEN)
    with TestClient(new_app(served)) as client:
        found = client.post(SUGGEST, data={"text": "read json", "limit": "50"}).json()["results"]
        uris = {each["label"]: each["uri"] for each in found}
        assert (uris["json"], uris["read"]) == ("http://x/1", "read")
        ((best, *_),) = client.post("/suggest", json={"texts": ["read"], "limit": 50}).json()["results"]
        assert best.keys() == {"label", "uri", "score"}
        (best,) = client.post("/explain", json={"text": "read", "limit": 1}).json()["results"]
        assert best["uri"] == (uris["json"] if best["label"] == "json" else None)
        document = {"text": "open it", "labels": ["<http://x/1>", "http://x/2", "write", "new", "http://x/3"]}
        answer = client.post("/learn", json={"documents": [document]}, headers=AUTHORIZED).json()
        ((*found,),) = client.post("/suggest", json={"texts": ["open it"], "limit": 50}).json()["results"]
    assert {each["label"]: each["uri"] for each in found}["http://x/3"] == "http://x/3"
    assert answer["labels"] == len(model.classes_) + 3
    assert served.model.classes_[-3:].tolist() == ["http://x/3", "new", "open <http://x/2>"]


def test_requests_that_come_together_are_one_call_of_the_model_for_each_number_of_labels(model):
    limits = (2, 3, 2, 3, 3, 2)

    async def together():
        served = ServedModel(model)
        server = Service(served, "words")
        asked = [server.suggest(served, [text, text], k) for text, k in zip(TEXTS, limits, strict=False)]
        return await asyncio.gather(*asked), server.metrics.counts

    found, counts = asyncio.run(together())
    assert counts == {"batches": 2, "texts": 12}  # a call for more labels may find others to be the best two
    for k, rows, text in zip(limits, found, TEXTS, strict=False):
        (wanted,) = expected(model, [text], k)
        for row in rows:
            assert [name for name, _ in row] == [each["label"] for each in wanted]
            assert [score for _, score in row] == pytest.approx([each["score"] for each in wanted])


def test_a_call_of_the_model_has_a_limited_size_and_nothing_for_requests_that_were_given_up(model, monkeypatch):
    for name, cost in (("MAX_CALL_COST", 830), ("TEXT_COST", 0), ("LABEL_COST", 100)):
        monkeypatch.setattr(service, name, cost)

    async def together():
        served = ServedModel(model)
        server = Service(served, "words")
        asked = [asyncio.ensure_future(server.suggest(served, ["read", "write"], k)) for k in (2, 2, 2, 7, 1, 1)]
        await asyncio.sleep(0)
        asked[4].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [len(each[0]) for each in found if isinstance(each, list)], server.metrics.counts

    assert asyncio.run(together()) == ([2, 2, 2, 7, 1], {"batches": 4, "texts": 10})


def test_explanations_leave_threads_to_suggestions(model, monkeypatch):
    """However many are asked for at once, one is made at a time."""
    running, most = [], []

    def slow(*_):
        running.append(1)
        most.append(len(running))
        running.pop()
        return []

    monkeypatch.setattr(service, "_explain", slow)

    async def together():
        served = ServedModel(model)
        server = Service(served, "words")
        await asyncio.gather(
            *(server.explain(served, "read", 1) for _ in range(20)), server.suggest(served, ["read"], 1)
        )
        return {thread.name for thread in server._explaining._threads}

    assert len(asyncio.run(together())) == 1
    assert most == [1] * 20


def test_a_slash_at_the_end_changes_no_answer(client):
    """A redirection would leave the path under which a proxy puts the server."""
    for path in ("/health", "/v1/projects", "/v1/projects/words"):
        answers = [client.get(each, follow_redirects=False) for each in (path, f"{path}/")]
        assert answers[0].json() == answers[1].json()
    assert client.post(f"{SUGGEST}/", data={"text": "read"}, follow_redirects=False).status_code == 200
    assert 'path="/health",status="200"} 2' in client.get("/metrics/").text


def test_counts_and_latencies_are_those_of_the_requests(client):
    for text in ("a", "b"):
        client.post("/suggest", json={"texts": [text, text]})
    client.post("/suggest", json={})
    client.get("/nowhere")
    lines = client.get("/metrics").text.splitlines()
    for line in (
        'xmlsgd_requests_total{path="/suggest",status="200"} 2',
        'xmlsgd_requests_total{path="/suggest",status="400"} 1',
        'xmlsgd_requests_total{path="other",status="404"} 1',
        'xmlsgd_request_seconds_bucket{path="/suggest",le="+Inf"} 3',
        'xmlsgd_request_seconds_count{path="/suggest"} 3',
        "xmlsgd_texts_total 4",
    ):
        assert line in lines


def test_loads_and_their_failures_are_counted_from_zero(client, served):
    def failing():
        raise MemoryError

    def counted():
        return [line for line in client.get("/metrics").text.splitlines() if line.startswith("xmlsgd_load")]

    assert counted() == ["xmlsgd_load_failures_total 0", "xmlsgd_loads_total 0"]
    with pytest.raises(MemoryError):
        asyncio.run(served.reload(failing))
    asyncio.run(served.reload(lambda: served.served))
    assert counted() == ["xmlsgd_load_failures_total 1", "xmlsgd_loads_total 1"]


def test_a_latency_counts_in_all_buckets_whose_bound_is_not_below_it():
    counts = RequestMetrics()
    for seconds in (0.001, 0.0011, 11.0):
        counts.record("/suggest", 200, seconds)
    lines = counts.text().splitlines()
    for bound, n in (("0.001", 1), ("0.0025", 2), ("10.0", 2), ("+Inf", 3)):
        assert f'xmlsgd_request_seconds_bucket{{path="/suggest",le="{bound}"}} {n}' in lines


def test_health_says_what_is_served(client, model):
    found = client.get("/health").json()
    loaded = datetime.fromisoformat(found.pop("loaded"))
    assert timedelta(0) <= datetime.now(timezone.utc) - loaded < timedelta(hours=1)
    assert found == {
        "status": "ok", "project": "words", "labels": len(model.classes_), "learns": True, "scores": "probability",
        "model": "",
    }  # fmt: skip


def test_an_explanation_names_the_analyzer_of_its_words(client):
    assert client.post("/explain", json={"text": "read json", "limit": 1}).json()["analyzer"] == "word"


def test_texts_that_waited_too_long_are_held_no_more(model):
    async def given_up():
        served = ServedModel(model)
        server = Service(served, "words")
        asked = [asyncio.create_task(server.suggest(served, [text], 1)) for text in ("read", "write")]
        await asyncio.sleep(0)
        asked[0].cancel()
        await asyncio.sleep(0)
        assert [each.texts for each in server._waiting] == [["write"]]
        return await asked[1]

    assert len(asyncio.run(given_up())) == 1
