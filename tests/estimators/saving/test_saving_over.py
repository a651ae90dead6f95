"""Saving over what is there: an earlier model is replaced whole or not at all, whoever fails, saves or loads."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from shared.saved_models import same_answers, small
from xmlsgd import ModelFileError, XMLClassifier
from xmlsgd.data.files import atomic, folders, manifest


def test_saving_replaces_an_earlier_model(rows, saved):
    X, Y = rows
    other = small(random_state=1).fit(X, Y)
    other.save(saved)
    assert same_answers(XMLClassifier.load(saved), other, X)
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_saving_does_not_replace_what_is_no_model(rows, tmp_path, kind):
    place = tmp_path / "precious"
    if kind == "file":
        place.write_text("text")
    else:
        place.mkdir()
        (place / "thesis.txt").write_text("text")
    with pytest.raises(ModelFileError, match="exists and is not a saved model"):
        small().fit(*rows).save(place)
    assert (place if kind == "file" else place / "thesis.txt").read_text() == "text"
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("manifest", ["{}", '{"format": "other", "files": {}}', "[]", "no JSON"])
def test_the_manifest_of_something_else_makes_no_saved_model(rows, tmp_path, manifest):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "MANIFEST.json").write_text(manifest)
    with pytest.raises(ModelFileError, match="exists and is not a saved model"):
        small().fit(*rows).save(tmp_path / "precious")
    assert (tmp_path / "precious" / "MANIFEST.json").read_text() == manifest


@pytest.mark.parametrize("late", [False, True])
def test_a_file_of_the_user_beside_a_model_is_not_lost_with_it(rows, saved, monkeypatch, late):
    def put():
        (saved / "notes.txt").write_text("text")

    if late:
        monkeypatch.setattr(manifest, "save_verified", lambda *given: put())
    else:
        put()
    with pytest.raises(ModelFileError, match=r"model: holds notes\.txt, which is no part of the saved model; move it"):
        small(random_state=1).fit(*rows).save(saved)
    assert (saved / "notes.txt").read_text() == "text"
    assert XMLClassifier.load(saved).random_state == 0
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


def failing(monkeypatch, owner, name, at):
    """Make the `at`-th call of a function fail as on a full disk; return the list of calls."""
    original, calls = getattr(owner, name), []

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) == at:
            raise OSError(28, "No space left on device")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


@pytest.mark.parametrize(
    ("owner", "name", "at"),
    [
        *[(folders, "_write_array", at) for at in (1, 2, 3)],
        *[(manifest, "sha256_of", at) for at in (1, 2, 3)],
        *[(os, "fsync", at) for at in (1, 2, 3)],
        (atomic, "_put_in_place", 1),
    ],
)
def test_a_save_that_fails_leaves_the_earlier_model_and_names_it(rows, saved, monkeypatch, owner, name, at):
    before = XMLClassifier.load(saved).predict_topk(rows[0])
    other = small(random_state=1).fit(*rows)
    with monkeypatch.context() as patch:
        failing(patch, owner, name, at)
        with pytest.raises(OSError, match="No space") as caught:
            other.save(saved)
    assert saved.name in caught.value.filename
    assert np.array_equal(XMLClassifier.load(saved).predict_topk(rows[0])[1], before[1])
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


def test_loading_while_two_threads_save_gives_whole_models_and_no_error(rows, saved):
    X, Y = rows
    models = [small(random_state=seed).fit(X, Y) for seed in range(2)]
    errors = []

    def save_often(model):
        try:
            for _ in range(10):
                model.save(saved)
        except Exception as error:  # noqa: BLE001 (whatever it is, the test shows it)
            errors.append(error)

    savers = [threading.Thread(target=save_often, args=(model,)) for model in models]
    for saver in savers:
        saver.start()
    for turn in range(20):  # without checksums a mixture would go unnoticed
        loaded = XMLClassifier.load(saved, verify=turn % 2)
        (seed,) = [seed for seed, model in enumerate(models) if np.array_equal(loaded.params_, model.params_)]
        assert loaded.random_state == seed
    for saver in savers:
        saver.join()
    assert errors == []
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


def test_a_model_is_not_saved_in_the_place_of_the_current_folder(rows, tmp_path, monkeypatch):
    model = small().fit(*rows)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match="is the current folder and cannot be replaced; name a folder in it"):
        model.save(".")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [float("nan"), object(), b"bytes"])
def test_a_history_that_is_no_json_is_refused_before_anything_is_written(rows, tmp_path, value):
    model = small().fit(*rows)
    model.history_[-1]["own"] = value
    with pytest.raises(ModelFileError, match="parameters and history must be finite numbers or texts"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
