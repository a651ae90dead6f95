"""Saved models that were altered are refused, with the file and what does not fit."""

from __future__ import annotations

import errno
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from shared.saved_models import edit_manifest, rewrite, small, some_rows
from xmlsgd import DataError, ModelFileError, XMLClassifier
from xmlsgd.data.files.folders import read_folder
from xmlsgd.data.files.reading import sha256_of


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.json", "params.npy", "classes.npy"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(ModelFileError, match=name):
        XMLClassifier.load(saved)


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.json", "params.npy", "classes.npy"])
def test_a_file_cut_anywhere_or_with_a_flipped_bit_is_refused(saved, name):
    good = (saved / name).read_bytes()
    rng = np.random.default_rng(0)
    for at in {0, 1, len(good) // 2, len(good) - 2, *rng.integers(0, len(good), 20).tolist()}:
        flipped = good[:at] + bytes([good[at] ^ (1 << int(rng.integers(8)))]) + good[at + 1 :]
        for bad in (good[:at], flipped):
            (saved / name).write_bytes(bad)
            try:
                XMLClassifier.load(saved)
            except ModelFileError:
                continue
            # Only the manifest is without a checksum: blanks and line ends in it may change.
            assert name == "MANIFEST.json"
            assert json.loads(bad) == json.loads(good)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": "Ridge"}, "must hold an XMLClassifier, got 'Ridge'"),
        ({"label_form": "poem"}, "label_form must be one of"),
        ({"network": None}, "network must have the fields"),
        ({"history": [1]}, "history must be a list of records"),
        ({"parameters": {"os.system": "true"}}, "parameters must be among those of XMLClassifier, got {'os.system'}"),
        ({"parameters": {"loss": "mse"}}, "loss must be one of"),
        ({"parameters": {"hidden_layer_sizes": "16"}}, "hidden_layer_sizes: must be"),
        ({"parameters": {"optimizer": {"name": "os.system", "numbers": {}}}}, "optimizer cannot be read"),
        ({"parameters": {"class_weight": [1, 2]}}, "class_weight cannot be read"),
        *[
            ({"parameters": {"algorithm": algorithm}}, "algorithm cannot be read, got")
            for algorithm in (
                {},
                {"module": "os", "numbers": {}},
                {"module": "base", "numbers": {}},
                {"module": "sequential", "numbers": {"speed": 1}},
                {"module": "sequential", "numbers": 3},
                {"module": ["sequential"], "numbers": {}},
            )
        ],
        ({"history": [{"loss": "low"}]}, "history must be a list of records"),
        ({"parameters": 3}, "parameters must be among"),
        ({"vectorizer": True}, r"vectorizer.json: is missing or no regular file"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_features": -1}, "n_features must be at least 0, got -1"),
        ({"n_features": 10**9}, "params must be float32"),
        ({"n_features": "30"}, "n_features must be a whole number"),
        ({"n_features": 31}, "params must be float32"),
        ({"n_labels": 13}, "must name 13 labels, got 12"),
        ({"hidden": []}, "hidden must have at least one layer"),
        ({"hidden": [16, 16]}, "params must be float32"),
        ({"hidden": "16"}, "hidden must be whole numbers"),
        ({"loss": "mse"}, "loss must be one of"),
        ({"loss": []}, "loss must be one of"),
        ({"hidden_dropout": 1.5}, r"hidden_dropout must be in \[0, 1\), got 1.5"),
        ({"input_scale": None}, "input_scale must be a number"),
        ({"depth": 3}, "network must have the fields"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(saved, change, message):
    rewrite(saved, {"network": {**read_folder(saved)[0]["network"], **change}})
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(saved)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"params": np.zeros(3, np.float32)}, r"params must be float32 \(\d+,\), got float32 \(3,\)"),
        ({"params": np.zeros((2, 2))}, r"got float64 \(2, 2\)"),
        ({"classes": np.zeros((12, 1))}, "classes must be a list of numbers"),
        ({"classes": np.arange(13)}, "must name 12 labels, got 13"),
        ({"classes": np.array(["a"] * 12)}, "classes must be a list of numbers, got <U1"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(saved, arrays, message):
    rewrite(saved, arrays=arrays)
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(saved)


def test_parameters_that_are_not_finite_are_refused(saved):
    params = np.array(read_folder(saved)[1]["params"])
    params[5] = np.nan
    rewrite(saved, arrays={"params": params})
    with pytest.raises(ModelFileError, match="params must be finite"):
        XMLClassifier.load(saved)


@pytest.mark.parametrize("ask", ["predict", "predict_topk", "decision_function", "predict_proba"])
@pytest.mark.parametrize("form", ["sparse", "dense", "multiclass"])
def test_a_model_that_answers_numbers_that_are_not_finite_is_said_to_be_damaged(tmp_path, ask, form):
    X, Y = some_rows()
    labels = {"sparse": Y, "dense": Y.toarray(), "multiclass": Y.toarray()[:, 0]}[form]
    small(max_epochs=1).fit(X, labels).save(tmp_path / "model")
    good = XMLClassifier.load(tmp_path / "model")
    rewrite(tmp_path / "model", arrays={"params": np.full_like(good.params_, 3e38)})
    with pytest.raises(ModelFileError, match=r"^the model's folder is damaged: its scores are not finite"):
        getattr(XMLClassifier.load(tmp_path / "model"), ask)(X)
    good.fitted_ = replace(good.fitted_, params=good.params_ * np.float32(1e10))
    X = X.copy()
    X.data[X.indptr[7]] = 3e38
    largest = f"got too large a value in column {X.indices[X.indptr[7]]}; scale X"
    with pytest.raises(DataError, match=f"^X: row 7: scores must be finite, {largest}"):
        getattr(good, ask)(X)


@pytest.mark.parametrize(
    ("ends", "text", "message"),
    [
        ([1, 3, 2], b"abcd", "classes_ends must rise to the 4 bytes"),
        ([1, 2, 3], b"abcd", "classes_ends must rise to the 4 bytes"),
        ([2**63 - 1, -(2**63), -1, 0, 4], b"abcd", "classes_ends must rise to the 4 bytes"),
        ([1, 2, 3], b"ab\xff", "classes must be UTF-8"),
        ([], b"", "must name 3 labels, got 0"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, ends, text, message):
    small().fit(np.eye(3), [["a"], ["b"], ["c"]]).save(tmp_path / "model")
    arrays = {"classes_ends": np.array(ends, np.int64), "classes_text": np.frombuffer(text, np.uint8)}
    rewrite(tmp_path / "model", arrays=arrays)
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.update(version=99), "format must be xmlsgd-model version 1, got"),
        (lambda m: m.update(format="zip"), "format must be xmlsgd-model"),
        (lambda m: m.pop("files"), "must list the files"),
        (lambda m: m["files"].update({"../../etc/passwd.json": {}}), "may name only .npy, .json, .txt files, got"),
        (lambda m: m["files"].update({"run.py": {}}), "may name only"),
        (lambda m: m["files"].update({"model.json": 3}), "may name only"),
        (lambda m: m["files"].update({"a" * 300 + ".npy": {}}), "is missing or no regular file"),
        (lambda m: m["files"].update({"\0.npy": {}}), "is missing or no regular file"),
        (lambda m: m["files"]["params.npy"].update(bytes=7), "params.npy: must have 7 bytes"),
        (lambda m: m["files"]["params.npy"].update(sha256="0"), "params.npy: its checksum differs"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(saved, edit, message):
    edit_manifest(saved, edit)
    with pytest.raises(ModelFileError, match=message):
        XMLClassifier.load(saved)


def test_a_link_in_the_place_of_an_array_is_refused(saved, tmp_path):
    (saved / "params.npy").rename(tmp_path / "params.npy")
    (saved / "params.npy").symlink_to(tmp_path / "params.npy")
    with pytest.raises(ModelFileError, match="is missing or no regular file"):
        XMLClassifier.load(saved)


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.json"])
def test_a_link_in_the_place_of_a_description_is_refused(saved, tmp_path, name):
    (saved / name).rename(tmp_path / name)
    (saved / name).symlink_to(tmp_path / name)
    with pytest.raises(ModelFileError, match=f"{name}: is missing or no regular file"):
        XMLClassifier.load(saved)


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.json"])
@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"", b"\xff", b"1" * 10_000, b"null"])
def test_what_is_no_json_object_is_refused(saved, name, text):
    (saved / name).write_bytes(text)
    if name == "model.json":
        entry = {"bytes": len(text), "sha256": sha256_of(saved / name)}
        edit_manifest(saved, lambda m: m["files"].update({name: entry}))
    with pytest.raises(ModelFileError, match=f"{name}: must be a JSON object"):
        XMLClassifier.load(saved)


def replace_params(saved, buffer):
    """Write other parameters into a saved model, with a manifest that fits them."""
    file = saved / "params.npy"
    file.write_bytes(buffer.getvalue())
    entry = {"bytes": len(buffer.getvalue()), "sha256": sha256_of(file)}
    edit_manifest(saved, lambda m: m["files"].update({"params.npy": entry}))


def test_an_array_of_objects_is_refused_unread(saved):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap()], dtype=object), allow_pickle=True)
    replace_params(saved, buffer)
    with pytest.raises(ModelFileError, match="must be a plain array"):
        XMLClassifier.load(saved)


def test_a_zip_of_arrays_and_an_array_in_fortran_order_are_refused(saved):
    zipped, fortran = io.BytesIO(), io.BytesIO()
    np.savez(zipped, np.zeros(3, np.float32))
    np.save(fortran, np.zeros((3, 2), np.float32, order="F"))
    for buffer in (zipped, fortran):
        replace_params(saved, buffer)
        with pytest.raises(ModelFileError, match=r"params.npy: must be a plain array, got"):
            XMLClassifier.load(saved)


def test_an_array_of_a_type_without_size_is_refused(saved):
    header = b"{'descr': '|S0', 'fortran_order': False, 'shape': (-1,), }".ljust(117) + b"\n"
    replace_params(saved, io.BytesIO(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header))
    with pytest.raises(ModelFileError, match=r"must be a plain array, got 'one of type .* and shape \(-1,\)'"):
        XMLClassifier.load(saved)


LACKING = [OSError(errno.EMFILE, "Too many open files"), MemoryError("too large")]


@pytest.mark.parametrize("error", LACKING, ids=["files", "memory"])
def test_what_the_machine_lacks_is_not_said_to_be_wrong_with_a_file(saved, monkeypatch, error):
    def lacking(*given, **options):
        raise error

    monkeypatch.setattr(np, "memmap", lacking)
    with pytest.raises(type(error)) as raised:
        XMLClassifier.load(saved)
    assert raised.value is error


@pytest.mark.parametrize("what", ["nothing", "file", "empty folder"])
def test_a_place_without_a_model_is_refused(tmp_path, what):
    place = tmp_path / "place"
    if what == "file":
        place.write_text("{}")
    elif what == "empty folder":
        place.mkdir()
    with pytest.raises(ModelFileError, match="place"):
        XMLClassifier.load(place)


def test_without_verification_sizes_are_checked_still(saved):
    with (saved / "params.npy").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ModelFileError, match=r"params.npy: must have \d+ bytes"):
        XMLClassifier.load(saved, verify=False)
