"""The server learns from texts and their labels, for those who have its token."""

from __future__ import annotations

import pytest

from xmlsgd import XMLClassifier

pytest.importorskip("starlette", reason='needs the extra "serve"')
pytest.importorskip("httpx2", reason="needs httpx2, of which starlette makes its client")

from starlette.testclient import TestClient

from shared.served import AUTHORIZED, TOKEN
from xmlsgd.errors import ModelFileError
from xmlsgd.serving import requests
from xmlsgd.serving.app import new_app
from xmlsgd.serving.service import ServedModel, Service


def test_feedback_is_learned_on_a_copy_and_saved_where_asked(model, tmp_path):
    model.save(tmp_path / "model")
    served = Service(ServedModel(model), "words", TOKEN, lambda learned: learned.save(tmp_path / "model"))
    documents = [{"text": "read a parquet file", "labels": ["parquet", "read"]}] * 8
    with TestClient(new_app(served)) as client:
        answer = client.post("/learn", json={"documents": documents}, headers=AUTHORIZED)
        assert answer.json() == {"learned": 8, "labels": len(model.classes_) + 1, "new_labels": ["parquet"]}
        (found,) = client.post("/suggest", json={"texts": ["parquet"]}).json()["results"]
        assert "parquet" in {each["label"] for each in found}
        assert "xmlsgd_learned_texts_total 8" in client.get("/metrics").text.splitlines()
    assert "parquet" not in model.classes_
    assert "parquet" in XMLClassifier.load(tmp_path / "model").classes_


def test_a_model_that_another_process_has_changed_is_a_conflict_with_a_remedy(model):
    def save(_):
        raise ModelFileError("m: another process has changed the model meanwhile")

    with TestClient(new_app(Service(ServedModel(model), "words", TOKEN, save))) as client:
        documents = [{"text": "read a parquet file", "labels": ["parquet"]}]
        answer = client.post("/learn", json={"documents": documents}, headers=AUTHORIZED)
    assert answer.status_code == 409
    assert answer.json()["detail"].endswith("meanwhile; nothing was learned: send SIGHUP to the server, which loads it")


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


def test_learning_is_off_without_a_token(model):
    with TestClient(new_app(Service(ServedModel(model), "words"))) as client:
        answer = client.post("/learn", json={"documents": [{"text": "a", "labels": ["b"]}]})
    assert answer.status_code == 403
    assert "learning is off" in answer.json()["detail"]


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


def test_other_fields_of_documents_to_learn_are_refused(client):
    document = {"title": "a", "body": "b", "labels": ["c"]}
    answer = client.post("/learn", json={"documents": [document]}, headers=AUTHORIZED)
    expected = "documents: must have no fields but text and labels, got 'body'"
    assert (answer.status_code, answer.json()["detail"]) == (400, expected)


@pytest.mark.parametrize("documents", [[], None, ["a"]])
def test_learning_nothing_is_refused_by_the_name_of_its_field(client, documents):
    answer = client.post("/learn", json={"documents": documents}, headers=AUTHORIZED)
    assert answer.json()["detail"].startswith("documents: must be a list of 1 to 1024 {")


def test_labels_to_learn_are_the_same_however_their_accents_and_the_blanks_around_them_are_written():
    assert requests.documents_of([{"text": "a", "labels": ["cafe\u0301", " café "]}]) == (["a"], [["café", "café"]])
