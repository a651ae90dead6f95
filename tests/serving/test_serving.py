"""The server in this process: what each route answers, and to what it says no."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from xmlsgd import XMLClassifier

pytest.importorskip("starlette", reason='needs the extra "serve"')
pytest.importorskip("httpx2", reason="needs httpx2, of which starlette makes its client")

from starlette.testclient import TestClient

from shared.malformed_bodies import malformed
from xmlsgd.errors import ModelFileError
from xmlsgd.serving import app, requests, service
from xmlsgd.serving.app import new_app
from xmlsgd.serving.service import Served, Service

TEXTS = ["read a file", "write a file", "read json text", "write json text", "open the socket", "close the socket"] * 4
LABELS = [text.split()[:2] for text in TEXTS]
TOKEN = "a secret token"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
SUGGEST = "/v1/projects/words/suggest"


@pytest.fixture(scope="module")
def model():
    return XMLClassifier((8,), max_epochs=20, random_state=0, n_jobs=1).fit(TEXTS, LABELS)


@pytest.fixture
def served(model):
    return Service(Served(model), "words", TOKEN)


@pytest.fixture
def client(served):
    with TestClient(new_app(served), raise_server_exceptions=False) as client:
        yield client


def expected(model, texts, k):
    labels, scores = model.predict_topk(texts, k, proba=True)
    rows = zip(model.classes_[labels].tolist(), scores.tolist(), strict=True)
    return [[{"label": name, "score": score} for name, score in zip(*row, strict=True)] for row in rows]


def test_a_form_is_answered_as_annif_does(client, model):
    answer = client.post(SUGGEST, data={"text": "read json", "limit": "3"})
    assert answer.status_code == 200
    (found,) = expected(model, ["read json"], 3)
    assert answer.json() == {
        "results": [{"uri": e["label"], "label": e["label"], "notation": None, "score": e["score"]} for e in found]
    }
    least = found[1]["score"]
    assert len(client.post(SUGGEST, data={"text": "read json", "threshold": str(least)}).json()["results"]) == 2


@pytest.mark.parametrize("encode", [str, lambda text: text.replace("ö", "%C3%B6")])
def test_a_form_may_have_letters_of_utf_8_escaped_or_not(encode):
    texts = ["köp böcker", "sälj böcker"] * 5
    model = XMLClassifier((4,), max_epochs=2, random_state=0, n_jobs=1).fit(texts, [[t.split()[0]] for t in texts])
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = encode("text=köp+böcker&limit=2").encode()
    with TestClient(new_app(Service(Served(model), "words"))) as client:
        answer = client.post(SUGGEST, content=body, headers=headers)
    (found,) = expected(model, ["köp böcker"], 2)
    assert [(each["label"], each["score"]) for each in answer.json()["results"]] == [
        (each["label"], each["score"]) for each in found
    ]


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
    with TestClient(new_app(Service(Served(model, exclude=excluded), "words", TOKEN))) as client:
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
    served = Service(Served(model, {"http://x/1": "json", "http://x/2": "open <http://x/2>"}), "words", TOKEN)
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
        served = Service(Served(model), "words")
        asked = [served.suggest([text, text], k) for text, k in zip(TEXTS, limits, strict=False)]
        return await asyncio.gather(*asked), served.metrics.counts

    found, counts = asyncio.run(together())
    assert counts == {"batches": 2, "texts": 12}  # a call for more labels may find others to be the best two
    for k, rows, text in zip(limits, found, TEXTS, strict=False):
        (wanted,) = expected(model, [text], k)
        for row in rows:
            assert [name for name, _ in row] == [each["label"] for each in wanted]
            assert [score for _, score in row] == pytest.approx([each["score"] for each in wanted])


def test_a_call_of_the_model_has_a_limited_size_and_nothing_for_requests_that_were_given_up(model, monkeypatch):
    monkeypatch.setattr(service, "MAX_SUGGESTIONS", 8)

    async def together():
        served = Service(Served(model), "words")
        asked = [asyncio.ensure_future(served.suggest(["read", "write"], k)) for k in (2, 2, 2, 7, 1, 1)]
        await asyncio.sleep(0)
        asked[4].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [len(each[0]) for each in found if isinstance(each, list)], served.metrics.counts

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
        served = Service(Served(model), "words")
        await asyncio.gather(*(served.explain("read", 1) for _ in range(20)), served.suggest(["read"], 1))
        return {thread.name for thread in served._explaining._threads}

    assert len(asyncio.run(together())) == 1
    assert most == [1] * 20


def test_feedback_is_learned_on_a_copy_and_saved_where_asked(model, tmp_path):
    model.save(tmp_path / "model")
    served = Service(Served(model), "words", TOKEN, lambda learned: learned.save(tmp_path / "model"))
    documents = [{"text": "read a parquet file", "labels": ["parquet", "read"]}] * 8
    with TestClient(new_app(served)) as client:
        answer = client.post("/learn", json={"documents": documents}, headers=AUTHORIZED)
        assert answer.json() == {"learned": 8, "labels": len(model.classes_) + 1, "new_labels": ["parquet"]}
        (found,) = client.post("/suggest", json={"texts": ["parquet"]}).json()["results"]
        assert "parquet" in {each["label"] for each in found}
    assert "parquet" not in model.classes_
    assert "parquet" in XMLClassifier.load(tmp_path / "model").classes_


def test_a_model_that_another_process_has_changed_is_a_conflict_with_a_remedy(model):
    def save(_):
        raise ModelFileError("m: another process has changed the model meanwhile")

    with TestClient(new_app(Service(Served(model), "words", TOKEN, save))) as client:
        documents = [{"text": "read a parquet file", "labels": ["parquet"]}]
        answer = client.post("/learn", json={"documents": documents}, headers=AUTHORIZED)
    assert answer.status_code == 409
    assert answer.json()["detail"].endswith("meanwhile; nothing was learned: send SIGHUP to the server, which loads it")


def test_an_error_of_the_model_in_prediction_is_no_conflict(model, monkeypatch):
    def fail(*_):
        raise ModelFileError("the model's folder is damaged")

    service = Service(Served(model), "words", TOKEN)
    monkeypatch.setattr(service, "suggest", fail)
    with TestClient(new_app(service)) as client:
        answer = client.post("/suggest", json={"texts": ["read a file"]})
    assert answer.status_code == 500
    assert "internal error: ModelFileError" in answer.json()["detail"]


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer "}, {"Authorization": TOKEN}, {"Authorization": b"\xff"}]
)
def test_learning_asks_for_the_token(client, served, headers):
    before = served.model
    answer = client.post("/learn", json={"documents": [{"text": "a", "labels": ["b"]}]}, headers=headers)
    assert (answer.status_code, served.model) == (401, before)


def test_the_scheme_of_a_token_may_be_written_in_any_case(client):
    headers = {"Authorization": f"bearer {TOKEN}"}
    assert client.post("/learn", json={"documents": [{"text": "a", "labels": ["b"]}]}, headers=headers).is_success


def test_a_slash_at_the_end_changes_no_answer(client):
    """A redirection would leave the path under which a proxy puts the server."""
    for path in ("/health", "/v1/projects", "/v1/projects/words"):
        answers = [client.get(each, follow_redirects=False) for each in (path, f"{path}/")]
        assert answers[0].json() == answers[1].json()
    assert client.post(f"{SUGGEST}/", data={"text": "read"}, follow_redirects=False).status_code == 200
    assert 'path="/health",status="200"} 2' in client.get("/metrics/").text


def test_learning_is_off_without_a_token(model):
    with TestClient(new_app(Service(Served(model), "words"))) as client:
        answer = client.post("/learn", json={"documents": [{"text": "a", "labels": ["b"]}]})
    assert answer.status_code == 403
    assert "learning is off" in answer.json()["detail"]


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


def test_health_says_what_is_served(client, model):
    found = client.get("/health").json()
    assert found == {
        "status": "ok", "project": "words", "labels": len(model.classes_), "learns": True, "scores": "probability",
    }  # fmt: skip


def test_an_explanation_names_the_analyzer_of_its_words(client):
    assert client.post("/explain", json={"text": "read json", "limit": 1}).json()["analyzer"] == "word"


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
        ({"texts": ["a"], "threshold": 2}, "threshold: must be a number from 0 to 1, got 2"),
        ({"texts": ["a"] * 1000, "limit": 101}, "limit: must be an integer from 1 to 100 for 1000 texts, got 101"),
        ([1], "body: must be a JSON object, got [1]"),
    ],
)
def test_a_wrong_field_is_named(client, body, detail):
    answer = client.post("/suggest", json=body)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {"status": 400, "title": "Bad Request", "detail": detail}


def test_bodies_that_are_too_large_too_slow_or_of_another_type_are_refused(client, monkeypatch):
    monkeypatch.setattr(requests, "MAX_BYTES", 100)
    large = client.post("/suggest", json={"texts": ["a" * 100]})
    assert (large.status_code, large.json()["detail"]) == (413, "body: must have at most 100 bytes; send fewer texts")
    assert client.post(SUGGEST, json={"text": "a"}).status_code == 415
    assert client.post("/suggest", data={"text": "a"}).status_code == 415
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.0)
    slow = client.post("/suggest", json={"texts": ["a"]})
    assert (slow.status_code, slow.json()["detail"]) == (408, "body: must arrive within 0 s; send fewer texts")


@pytest.mark.parametrize(
    "names",
    [[""], [" \t"], ["read", ""], [], "read", [1], ["a\tb"], ["a\n"], pytest.param(["a" * 1001], id="a long name")],
)
def test_a_label_without_a_name_of_one_line_is_not_learned(client, served, names):
    before = served.model
    answer = client.post("/learn", json={"documents": [{"text": "a", "labels": names}]}, headers=AUTHORIZED)
    assert answer.status_code == 400
    assert "labels: must be a list of names, at least one, none empty or with tabs" in answer.json()["detail"]
    assert served.model is before


@pytest.mark.parametrize("documents", [[], None, ["a"]])
def test_learning_nothing_is_refused_by_the_name_of_its_field(client, documents):
    answer = client.post("/learn", json={"documents": documents}, headers=AUTHORIZED)
    assert answer.json()["detail"].startswith("documents: must be a list of 1 to 1024 {")


def test_labels_to_learn_are_the_same_however_their_accents_and_the_blanks_around_them_are_written():
    assert requests.documents_of([{"text": "a", "labels": ["cafe\u0301", " café "]}]) == (["a"], [["café", "café"]])


def test_texts_that_waited_too_long_are_held_no_more(model):
    async def given_up():
        served = Service(Served(model), "words")
        asked = [asyncio.create_task(served.suggest([text], 1)) for text in ("read", "write")]
        await asyncio.sleep(0)
        asked[0].cancel()
        await asyncio.sleep(0)
        assert [each.texts for each in served._waiting] == [["write"]]
        return await asked[1]

    assert len(asyncio.run(given_up())) == 1


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
    with TestClient(new_app(Service(Served(model), "words"))) as client:
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
