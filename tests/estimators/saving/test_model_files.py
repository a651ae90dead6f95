"""A model folder that was cut, overwritten or crafted is refused in one line, or it is a model that answers."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress

import numpy as np
import pytest

from xmlsgd import DataError, ModelFileError, XMLClassifier
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.files.manifest import VERIFIED
from xmlsgd.data.files.reading import sha256_of
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.nn.optimizers import Adam

TEXTS = ["red apple", "green apple", "red car", "green car"] * 4
WRONG = [
    None,
    True,
    -1,
    0,
    3,
    0.5,
    -0.5,
    1e308,
    10**30,
    float("nan"),
    "x",
    "",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    "\ud800",
]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return the folder of a model with every kind of file and field."""
    model = XMLClassifier(
        (8, 4),
        max_epochs=2,
        random_state=0,
        n_jobs=1,
        optimizer=Adam(beta2=0.99),
        learning_rate_init=0.01,
        algorithm=Sequential(batch=4, learning_rate=0.01),
        vectorizer=TextVectorizer(min_df=1),
    )
    model.fit(TEXTS, [["a"], ["b"], ["c"], ["d", "a"]] * 4)
    path = tmp_path_factory.mktemp("good") / "model"
    model.save(path)
    return path


@pytest.fixture
def saved(good, tmp_path):
    """Return a copy of that folder."""
    shutil.copytree(good, tmp_path / "model")
    return tmp_path / "model"


def put(folder, name, data):
    """Write a file of the folder, and its size and checksum into the manifest, as one would who means harm."""
    (folder / name).write_bytes(data)
    if name != "MANIFEST.json":
        manifest = json.loads((folder / "MANIFEST.json").read_text())
        manifest["files"][name] = {"bytes": len(data), "sha256": sha256_of(folder / name)}
        (folder / "MANIFEST.json").write_text(json.dumps(manifest))


def refused(folder):
    """Return whether a folder is refused, in one line that names it; what is loaded must answer."""
    error = None
    try:
        model = XMLClassifier.load(folder)
    except ModelFileError as caught:
        error = caught
    else:
        with suppress(DataError):  # such as of a device that another machine may have
            assert model.set_params(n_jobs=1).predict_topk(TEXTS[:4], 2)[0].shape == (4, 2)
    assert error is None or (str(folder) in str(error) and "\n" not in str(error))
    return error is not None


def places(value, path=()):
    """Yield the path to every value within JSON."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value, path, new):
    """Return JSON with the value at `path` replaced."""
    if not path:
        return new
    value = value.copy()
    value[path[0]] = replaced(value[path[0]], path[1:], new)
    return value


NAMES = ["model.json", "MANIFEST.json", "vectorizer.json", "params.npy"]
NAMES += [f"classes_{part}.npy" for part in ("text", "ends", "fixed", "counts")]


def test_the_files_are_all_that_there_are(good):
    assert sorted([*NAMES, VERIFIED]) == sorted(file.name for file in good.iterdir())
    assert not refused(good)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".json")])
@pytest.mark.slow
def test_fields_of_any_other_type_are_refused_or_do_no_harm(saved, name):
    description = json.loads((saved / name).read_text())
    count = 0
    for path in places(description):
        for wrong in WRONG:
            put(saved, name, json.dumps(replaced(description, path, wrong)).encode())
            count += refused(saved)
        if path and isinstance(path[-1], str):
            put(saved, name, json.dumps(without(description, path)).encode())
            refused(saved)
    assert count > 50


def without(value, path):
    """Return JSON without the field at `path`."""
    value = value.copy()
    if len(path) == 1:
        del value[path[0]]
    else:
        value[path[0]] = without(value[path[0]], path[1:])
    return value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_files_cut_or_overwritten_are_refused_or_do_no_harm(saved, name):
    rng = np.random.default_rng(0)
    good = (saved / name).read_bytes()
    cuts = {0, 1, 7, 10, 64, len(good) // 2, len(good) - 2}
    for at in cuts:
        put(saved, name, good[:at])
        assert refused(saved)
    put(saved, name, rng.bytes(len(good)))
    assert refused(saved)
    for at in [*rng.integers(0, min(len(good), 128), 60), *rng.integers(0, len(good), 60)]:  # headers, and anywhere
        put(saved, name, good[:at] + rng.bytes(3) + good[at + 3 :])
        refused(saved)


@pytest.mark.parametrize(
    "header", ["{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", "[" * 3000, "()" * 3000]
)
def test_a_crafted_header_of_an_array_is_refused(saved, header):
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    put(saved, "params.npy", start + bytes(64))
    assert refused(saved)


def test_a_shape_larger_than_any_memory_is_refused_before_it_is_taken(saved):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000000,), }"
    put(saved, "params.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64))
    assert refused(saved)


def noted(folder):
    """Let the files of a folder be of long ago, and load it, so that all of them are noted as checked."""
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    assert not refused(folder)


def test_what_was_checked_is_checked_again_when_it_has_changed(saved, monkeypatch):
    read = []

    def noting(file):
        read.append(file.name)
        return sha256_of(file)

    monkeypatch.setattr("xmlsgd.data.files.manifest.sha256_of", noting)
    noted(saved)
    assert sorted(read) == sorted(name for name in NAMES if name != "MANIFEST.json")
    read.clear()
    assert not refused(saved)
    assert read == []
    data = bytearray((saved / "params.npy").read_bytes())
    data[-1] ^= 1
    (saved / "params.npy").write_bytes(data)
    assert refused(saved)
    assert read == ["params.npy"]


def test_a_file_as_late_as_the_note_is_checked_again(saved):
    noted(saved)
    late = (saved / VERIFIED).stat().st_mtime_ns
    states = json.loads((saved / VERIFIED).read_text())
    data = bytearray((saved / "params.npy").read_bytes())
    data[-1] ^= 1
    (saved / "params.npy").write_bytes(data)
    states["params.npy"]["mtime_ns"] = late
    (saved / VERIFIED).write_text(json.dumps(states))
    for name in ("params.npy", VERIFIED):
        os.utime(saved / name, ns=(late, late))
    assert refused(saved)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"params.npy": 3}', '{"params.npy": {}}', "\xff", "[" * 10**5])
def test_a_note_that_says_nothing_changes_nothing(saved, text):
    (saved / VERIFIED).write_text(text, encoding="latin-1")
    assert not refused(saved)
    data = bytearray((saved / "params.npy").read_bytes())
    data[-1] ^= 1
    (saved / VERIFIED).write_text(text, encoding="latin-1")
    (saved / "params.npy").write_bytes(data)
    assert refused(saved)


def test_a_note_is_never_written_through_a_link(saved, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (saved / VERIFIED).unlink()
    (saved / VERIFIED).symlink_to(tmp_path / "mine")
    assert not refused(saved)
    assert (tmp_path / "mine").read_text() == "mine"
