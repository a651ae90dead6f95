"""Compact models: small on disk, answers as before, only to predict with."""

from __future__ import annotations

import copy
import json
import os
import pickle
from hashlib import sha256

import numpy as np
import pytest

from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.cli import main
from xmlsgd.data.csr import CSR, index_type
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.devices.compact import compacted
from xmlsgd.errors import DataError, ModelFileError
from xmlsgd.estimators.inference.compact import CompactParams
from xmlsgd.metrics import precision_at_k


@pytest.mark.parametrize("largest", [0, 1, 2])
def test_indices_of_saved_models_are_wide_if_there_are_many_features_rows_or_labels(largest):
    counts = np.full(3, 65_535)
    assert index_type(*counts.tolist()) is np.uint16
    counts[largest] += 1
    assert index_type(*counts.tolist()) is np.int32


def folder_bytes(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.fixture(scope="module")
def data():
    return make_xmc(3000, 900, 300, nnz_per_row=10, labels_per_row=3, random_state=0)


@pytest.fixture(scope="module", params=[0, 32], ids=["network alone", "candidates"])
def model(data, request):
    settings = {"candidates": request.param, "max_epochs": 2, "n_jobs": 1, "random_state": 0}
    return XMLClassifier((32,), **settings).fit(data.X.span(0, 2500), data.Y.span(0, 2500))


@pytest.fixture
def small(model, tmp_path):
    model.save(tmp_path / "small", compact=True)
    return tmp_path / "small"


def altered(folder, name, change):
    """Change an array of a model folder, and the manifest with it, as somebody would who means it."""
    file, manifest = folder / f"{name}.npy", json.loads((folder / "MANIFEST.json").read_text())
    np.save(file, change(np.load(file)))
    entry = {"bytes": file.stat().st_size, "sha256": sha256(file.read_bytes()).hexdigest()}
    manifest["files"][file.name] = entry
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))


@pytest.mark.slow
def test_a_compact_model_is_a_fraction_as_large_and_ranks_as_well(data, model, small, tmp_path):
    model.save(tmp_path / "whole")
    numbers = sum(np.load(file).size for file in (tmp_path / "whole").glob("*.npy"))
    assert folder_bytes(small) < 1.9 * numbers
    assert folder_bytes(tmp_path / "whole") < (4.2 if model.candidates_ is None else 3.3) * numbers
    X, Y = data.X.span(2500, 3000), data.Y.span(2500, 3000)
    (labels, scores), (found, found_scores) = (m.predict_topk(X, 5) for m in (model, XMLClassifier.load(small)))
    assert np.mean(labels[:, 0] == found[:, 0]) > 0.95
    # More where rounding takes an input of a tree across a threshold.
    assert np.mean(np.abs(found_scores - scores) < 0.1) > 0.98
    np.testing.assert_allclose(precision_at_k(Y, found, 5), precision_at_k(Y, labels, 5), atol=0.01)


def test_weights_move_by_half_a_step_of_their_rows_scale_and_biases_not_at_all(model, small):
    before, after = (m.network_.layout.views(m.params_) for m in (model, XMLClassifier.load(small)))
    for name, tensor in before.items():
        if tensor.ndim == 1:
            np.testing.assert_array_equal(after[name], tensor)
        else:
            limit = np.abs(tensor).max(axis=1, keepdims=True) / 254
            assert (np.abs(after[name] - tensor) <= 1.001 * limit).all()
            assert (after[name] != tensor).any()


def test_a_compact_model_that_is_loaded_and_saved_again_stays_what_it_is(data, small, tmp_path):
    XMLClassifier.load(small).save(tmp_path / "again", compact=True)
    with pytest.raises(DataError, match="no float32 weights; pass compact=True"):
        XMLClassifier.load(small).save(tmp_path / "wide")
    for file in small.iterdir():
        if file.name != "verified.json":  # which has times
            assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_a_compact_model_says_that_it_cannot_learn_on(data, small):
    with pytest.raises(DataError, match=r"compact and cannot be trained further; train it again without compact"):
        XMLClassifier.load(small).partial_fit(data.X, data.Y)


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        (
            "W1_int8",
            np.float16,
            r"W1_int8 must .* got float16 \(300, 32\); the model may be of another version: train it or save it again$",
        ),
        ("W1_int8", lambda a: a[:-1], r"W1_int8 must be int8 \(300, 32\), got int8 \(299, 32\)"),
        ("W0_scales", lambda a: a * np.nan, "W0_scales must be finite"),
        ("b0", lambda a: a.astype(np.float64), r"b0 must be float32 \(32,\), got float64"),
        ("classes", lambda a: a[:-1], "must name 300 labels, got 299"),
        ("candidates_linear_int8", lambda a: a[:-1], "linear_int8 must be int8"),
        ("candidates_linear_scales", lambda a: a[:-1], "linear_scales must be float32"),
        ("candidates_linear_buckets", lambda a: a.reshape(7, -1), "linear_buckets must be int32"),
        (
            "candidates_labels_indices",
            lambda a: a.astype(np.int32),
            r"labels_indices must be uint16 .*got int32 .*; the model may be of another",
        ),
        ("candidates_labels_indptr", lambda a: a.astype(np.int64), "labels_indptr must be int32"),
        ("candidates_postings_int8", lambda a: a.astype(np.float32), "postings_int8 must be int8"),
        ("candidates_postings_scales", lambda a: a[:-1], "postings_scales must be float32"),
        ("candidates_cooccurrence_scales", lambda a: a * np.inf, "cooccurrence_scales must be finite"),
        ("candidates_weight", lambda a: -a, "weight must be at least 0"),
    ],
)
def test_a_compact_model_that_save_cannot_have_written_is_refused(model, small, name, change, complaint):
    if model.candidates_ is None and name.startswith("candidates_"):
        assert not (small / f"{name}.npy").exists()
        return
    altered(small, name, change)
    with pytest.raises(ModelFileError, match=complaint):
        XMLClassifier.load(small)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("linear_buckets", lambda a: a[::-1]),
        ("linear_buckets", lambda a: a + a[-1]),
        ("postings_indptr", lambda a: -a),
        ("postings_indptr", lambda a: a * 7),
        ("postings_indptr", lambda a: np.append(a[:1], np.full(len(a) - 1, a[-1]))),
        ("postings_indices", lambda a: a + np.uint16(2500)),
        ("labels_indptr", lambda a: a[::-1]),
        ("labels_indices", lambda a: a + np.uint16(300)),
    ],
)
def test_what_leads_to_nothing_is_found_where_a_kernel_meets_it(data, model, small, name, change):
    if model.candidates_ is None:
        return
    altered(small, f"candidates_{name}", change)
    for ask in ("predict_topk", "decision_function"):
        with pytest.raises(ModelFileError, match="damaged: a pointer or an index is out of range"):
            getattr(XMLClassifier.load(small), ask)(data.X.span(2500, 3000))


@pytest.mark.slow
@pytest.mark.parametrize(("most", "kinds"), [(299, (np.int32, np.int32)), (2499, (np.int32, np.uint16))])
def test_large_numbers_and_pointers_have_more_bytes(data, model, small, tmp_path, monkeypatch, most, kinds):
    if model.candidates_ is None:
        return
    monkeypatch.setattr("xmlsgd.data.csr.MAX_UINT16", most)
    monkeypatch.setattr("xmlsgd.data.csr.INT32_MAX", 2000)
    model.save(tmp_path / "wide", compact=True)
    X, wide = data.X.span(2500, 3000), XMLClassifier.load(tmp_path / "wide")
    arrays = [np.load(tmp_path / "wide" / f"candidates_{name}.npy") for name in ("postings_indices", "linear_keys")]
    assert tuple(array.dtype for array in arrays) == kinds
    assert np.load(tmp_path / "wide" / "candidates_postings_indptr.npy").dtype == np.int64
    expected = wide.predict_topk(X)
    altered(tmp_path / "wide", "candidates_labels_indices", lambda a: a - 300)
    with pytest.raises(ModelFileError, match="damaged"):
        XMLClassifier.load(tmp_path / "wide").predict_topk(X)
    monkeypatch.undo()
    for a, b in zip(expected, XMLClassifier.load(small).predict_topk(X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_tables_without_an_end_end_the_search_for_a_weight(data, model, small):
    if model.candidates_ is None:
        return
    altered(small, "candidates_linear_keys", lambda a: np.full_like(a, 901))
    assert np.isfinite(XMLClassifier.load(small).predict_topk(data.X.span(2500, 2600))[1]).all()


def test_weights_of_few_features_are_saved_as_a_dense_matrix(tmp_path):
    data = make_xmc(700, 60, 40, nnz_per_row=20, labels_per_row=3, random_state=0)
    model = XMLClassifier((32,), max_epochs=1, n_jobs=1, random_state=0).fit(data.X, data.Y)
    model.save(tmp_path / "dense", compact=True)
    assert np.load(tmp_path / "dense" / "candidates_linear_keys.npy").size == 0
    scores, found = (m.decision_function(data.X) for m in (model, XMLClassifier.load(tmp_path / "dense")))
    # More where rounding takes an input of a tree across a threshold.
    assert np.mean(np.abs(found - scores) < 0.1) > 0.99
    assert np.mean(found.argmax(axis=1) == scores.argmax(axis=1)) > 0.95
    for name in ("linear_int8", "linear_buckets"):
        kept = np.load(tmp_path / "dense" / f"candidates_{name}.npy")
        altered(tmp_path / "dense", f"candidates_{name}", lambda a: np.append(a, a.dtype.type(1)))
        with pytest.raises(ModelFileError, match=f"{name} must be"):
            XMLClassifier.load(tmp_path / "dense")
        altered(tmp_path / "dense", f"candidates_{name}", lambda a, kept=kept: kept)


def test_a_compact_model_is_opened_and_asked_as_it_lies_in_its_files(data, small, monkeypatch):
    monkeypatch.setattr(CompactParams, "expanded", lambda self: pytest.fail("all weights were widened"))
    for file in small.iterdir():
        os.utime(file, (1, 1))
    XMLClassifier.load(small)  # checked now, and not again
    monkeypatch.setattr("xmlsgd.data.files.manifest.sha256_of", lambda file: pytest.fail(f"{file} was read"))
    model = XMLClassifier.load(small)
    X = data.X.span(2500, 2520)
    assert model.predict_topk(X, 3)[0].shape == (20, 3)
    assert model.predict_topk(X[:1], 3)[0].shape == (1, 3)
    assert model.predict_proba(X).shape == (20, 300)
    for array in model.fitted_.params.arrays.values():
        assert isinstance(array, np.memmap)


def test_a_compact_model_is_copied_pickled_and_learned_anew_as_any(data, small):
    X = data.X.span(2500, 2600)
    model = XMLClassifier.load(small)
    expected = model.predict_topk(X)
    for other in (copy.copy(model), pickle.loads(pickle.dumps(model))):
        for a, b in zip(other.predict_topk(X), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    fresh = XMLClassifier(**model.get_params()).fit(data.X.span(0, 500), data.Y.span(0, 500))
    again = model.fit(data.X.span(0, 500), data.Y.span(0, 500))
    np.testing.assert_array_equal(again.params_, fresh.params_)


@pytest.mark.parametrize("precision", ["float32", "auto"])
@pytest.mark.parametrize("hidden", [(32,), (24, 40)])
def test_compact_weights_predict_as_the_same_weights_in_float32(data, tmp_path, precision, hidden):
    model = XMLClassifier(hidden, candidates=0, max_epochs=1, n_jobs=1, random_state=0, precision=precision)
    model.fit(data.X.span(0, 500), data.Y.span(0, 500)).save(tmp_path / "small", compact=True)
    small = XMLClassifier.load(tmp_path / "small")
    model.save(tmp_path / "wide")
    altered(tmp_path / "wide", "params", lambda _: small.params_)
    wide = XMLClassifier.load(tmp_path / "wide")
    X = data.X.span(500, 800)
    for rows in (X, X[:1], X[:40]):
        for columns in (None, [7, 3, 250]):
            a, b = (m.predict_topk(rows, 3, labels=columns) for m in (small, wide))
            np.testing.assert_allclose(a[1], b[1], rtol=1e-5, atol=1e-5)
            assert np.mean(a[0] == b[0]) > 0.99
            a, b = (m.decision_function(rows, labels=columns) for m in (small, wide))
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_text_names_of_a_compact_model_come_back_when_asked_for(data, tmp_path):
    labels = [[f"name {label}" for label in data.Y.row(i)[0]] for i in range(300)]
    model = XMLClassifier((8,), max_epochs=1, n_jobs=1, random_state=0).fit(data.X.span(0, 300), labels)
    model.save(tmp_path / "small", compact=True)
    small = XMLClassifier.load(tmp_path / "small")
    assert small.predict(data.X.span(0, 2)).shape == (2, len(model.classes_))
    np.testing.assert_array_equal(small.classes_, model.classes_)


def test_a_model_with_labels_of_no_weights_and_rows_of_zeros_is_made_compact(tmp_path):
    X = CSR(np.array([0, 0, 2, 3]), np.array([0, 2, 1], np.int32), np.ones(3, np.float32), 4)
    Y = CSR(np.array([0, 1, 2, 2]), np.array([0, 3], np.int32), np.ones(2, np.float32), 5)
    model = XMLClassifier((4,), candidates=2, max_epochs=1, n_jobs=1, random_state=0).fit(X, Y)
    model.save(tmp_path / "small", compact=True)
    scores = XMLClassifier.load(tmp_path / "small").decision_function(X)
    np.testing.assert_allclose(scores, model.decision_function(X), atol=0.05)


def test_weights_so_small_that_their_scale_underflows_become_zeros():
    weights, scales = compacted(np.array([1e-45, -1e-45, 1e-42, 0, 1, -1], np.float32), np.arange(0, 7, 2))
    np.testing.assert_allclose(weights.reshape(3, 2) * scales[:, None], [[0, 0], [0, 0], [1, -1]], atol=1e-40)


@pytest.mark.slow
def test_the_command_line_saves_a_compact_model_and_predicts_with_it(data, tmp_path, capsys):
    write_libsvm(data, tmp_path / "rows.txt")
    rows, folder = str(tmp_path / "rows.txt"), str(tmp_path / "m")
    quick = ("--hidden", "16", "--epochs", "1", "--threads", "1", "--seed", "0", "--quiet")
    assert main(["train", rows, "--out", folder, "--compact", *quick]) == 0
    assert (tmp_path / "m" / "W1_int8.npy").exists()
    assert main(["predict", folder, rows, "--out", str(tmp_path / "ranked.txt")]) == 0
    assert len((tmp_path / "ranked.txt").read_text().splitlines()) == 3000
    assert main(["learn", folder, rows, "--quiet"]) == 2
    assert "m: is compact and cannot be trained further; train it again without compact" in capsys.readouterr().err
