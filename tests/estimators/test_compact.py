"""Compact models: small on disk, answers as before, only to predict with."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.cli import main
from xmlsgd.csr import CSR
from xmlsgd.datasets import write_libsvm
from xmlsgd.errors import DataError, ModelFileError
from xmlsgd.estimators.compact import compacted, expanded
from xmlsgd.metrics import precision_at_k
from xmlsgd.params import Layout


def folder_bytes(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.fixture(scope="module")
def data():
    return make_xmc(3000, 900, 300, nnz_per_row=10, labels_per_row=3, random_state=0)


@pytest.fixture(scope="module", params=[0, 32], ids=["network alone", "shortlist"])
def model(data, request):
    settings = {"shortlist": request.param, "max_epochs": 2, "n_jobs": 1, "random_state": 0}
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


def test_a_compact_model_is_a_fraction_as_large_and_ranks_as_well(data, model, small, tmp_path):
    model.save(tmp_path / "whole")
    model.save(tmp_path / "light", predict_only=True)
    assert folder_bytes(small) < 0.45 * folder_bytes(tmp_path / "light") < 0.45 * folder_bytes(tmp_path / "whole")
    X, Y = data.X.span(2500, 3000), data.Y.span(2500, 3000)
    (labels, scores), (found, found_scores) = (m.predict_topk(X, 5) for m in (model, XMLClassifier.load(small)))
    assert np.mean(labels[:, 0] == found[:, 0]) > 0.95
    np.testing.assert_allclose(found_scores, scores, atol=0.1)
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
    XMLClassifier.load(small).save(tmp_path / "wide")
    X = data.X.span(2500, 3000)
    expected = XMLClassifier.load(small).predict_topk(X)
    for name in ("again", "wide"):
        for a, b in zip(XMLClassifier.load(tmp_path / name).predict_topk(X), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    assert folder_bytes(tmp_path / "again") == pytest.approx(folder_bytes(small), abs=200)


def test_a_compact_model_says_that_it_cannot_learn_on(data, small):
    with pytest.raises(DataError, match=r"no optimizer state; .* saved without predict_only and compact"):
        XMLClassifier.load(small).partial_fit(data.X, data.Y)
    with pytest.raises(ModelFileError, match=r"holds no optimizer state \(saved with compact\); load it predict_only"):
        XMLClassifier.load(small, predict_only=False)


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("W1_int8", lambda a: a[:-1], r"W1_int8 must be int8 \(9600,\), got int8 \(9599,\)"),
        ("W0_scales", lambda a: a * np.nan, "params must be finite"),
        ("b0", lambda a: a.astype(np.float64), r"b0 must be float32 \(32,\), got float64"),
        ("shortlist_linear_int8", lambda a: a[:-1], "linear_indptr: must lead from 0"),
        ("shortlist_linear_scales", lambda a: a[:-1], "linear_scales must be float32"),
        ("shortlist_linear_indptr", lambda a: a[::-1], "linear_indptr: must lead from 0"),
        ("shortlist_linear_indptr", lambda a: a.reshape(7, -1), "linear_indptr must be int64"),
        ("shortlist_linear_indices", lambda a: a.astype(np.int32) + 900, "linear_indices: must be in"),
        ("shortlist_postings_data", lambda a: a * np.float16(9), "postings_data must be within -1 and 1"),
    ],
)
def test_a_compact_model_that_save_cannot_have_written_is_refused(model, small, name, change, complaint):
    if model.shortlist_ is None and name.startswith("shortlist"):
        assert not (small / f"{name}.npy").exists()
        return
    altered(small, name, change)
    with pytest.raises(ModelFileError, match=complaint):
        XMLClassifier.load(small)


def test_a_model_with_labels_of_no_weights_and_rows_of_zeros_is_made_compact(tmp_path):
    X = CSR(np.array([0, 0, 2, 3]), np.array([0, 2, 1], np.int32), np.ones(3, np.float32), 4)
    Y = CSR(np.array([0, 1, 2, 2]), np.array([0, 3], np.int32), np.ones(2, np.float32), 5)
    model = XMLClassifier((4,), shortlist=2, max_epochs=1, n_jobs=1, random_state=0).fit(X, Y)
    model.save(tmp_path / "small", compact=True)
    scores = XMLClassifier.load(tmp_path / "small").decision_function(X)
    np.testing.assert_allclose(scores, model.decision_function(X), atol=0.05)


def test_weights_so_small_that_their_scale_underflows_become_zeros():
    layout = Layout({"W0": (3, 2)})
    tiny = {"params": np.resize(np.array([1e-45, -1e-45, 1e-42, 0, 1, -1], np.float32), layout.size)}
    arrays = expanded(compacted(tiny, layout), layout, Path("model"))
    W0 = layout.views(arrays["params"])["W0"]
    np.testing.assert_allclose(W0, [[0, 0], [0, 0], [1, -1]], atol=1e-40)


def test_the_command_line_saves_a_compact_model_and_predicts_with_it(data, tmp_path, capsys):
    write_libsvm(data, tmp_path / "rows.txt")
    rows, folder = str(tmp_path / "rows.txt"), str(tmp_path / "m")
    quick = ("--hidden", "16", "--epochs", "1", "--threads", "1", "--seed", "0", "--quiet")
    assert main(["train", rows, "--out", folder, "--compact", *quick]) == 0
    assert not (tmp_path / "m" / "optimizer_state.npy").exists()
    assert (tmp_path / "m" / "W1_int8.npy").exists()
    assert main(["predict", folder, rows, "--out", str(tmp_path / "ranked.txt")]) == 0
    assert len((tmp_path / "ranked.txt").read_text().splitlines()) == 3000
    assert main(["train", rows, "--out", folder, "--warm-start", *quick]) == 2
    assert "holds no optimizer state (saved with compact)" in capsys.readouterr().err
