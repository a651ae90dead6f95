"""The reader of compact models in examples: by NumPy alone, it gives the labels and scores of the package."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from shared.paths import DATA, ROOT
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates.boosted_trees import BoostedTrees
from xmlsgd.candidates.exclusion import Exclusion
from xmlsgd.data.text import read_raw_text
from xmlsgd.data.vectorizer import TextVectorizer

READER = ROOT / "examples" / "numpy_reader.py"
TRAIN, TEST = (read_raw_text(DATA / f"{part}_raw.txt", labelled=True) for part in ("train", "test"))
SETTINGS = {"max_epochs": 2, "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def reader():
    """The module of the example."""
    return SimpleNamespace(**runpy.run_path(str(READER)))


@pytest.fixture(scope="module")
def of_texts():
    return XMLClassifier(candidates=64, **SETTINGS).fit(TRAIN.texts, TRAIN.labels)


def with_trees(model):
    """Return a model whose stacking has trees, which so few rows would not keep."""
    random = np.random.default_rng(0)
    feature = random.integers(0, 5, (3, 15)).astype(np.uint8)
    threshold, value = (random.normal(size=(3, n)).astype(np.float32) for n in (15, 16))
    frequency = model.label_counts_.astype(np.float32)
    candidates = model.fitted_.candidates
    stacking = candidates.stacking._replace(trees=BoostedTrees(feature, threshold, value, frequency))
    model.fitted_ = replace(model.fitted_, candidates=replace(candidates, stacking=stacking))
    return model


def assert_same_answers(found, labels, scores):
    """Compare labels and scores within 1e-5; labels of scores closer than that may change places."""
    for (own_labels, own_scores), row_labels, row_scores in zip(found, labels, scores, strict=True):
        np.testing.assert_allclose(own_scores, row_scores, atol=1e-5, rtol=1e-5)
        differ = np.flatnonzero(own_labels != row_labels)
        gaps = np.abs(np.diff(row_scores, append=-np.inf, prepend=np.inf))
        assert all(min(gaps[j], gaps[j + 1]) < 2e-5 for j in differ if j < len(row_labels) - 1)


def with_exclusion(model):
    """Return a model whose stacking excludes labels at random."""
    table = np.random.default_rng(0).integers(0, 256, (20, 20), dtype=np.uint8)
    candidates = model.fitted_.candidates
    stacking = candidates.stacking._replace(exclusion=Exclusion(np.arange(1, 40, 2, dtype=np.int32), table, 0.5))
    model.fitted_ = replace(model.fitted_, candidates=replace(candidates, stacking=stacking))
    return model


@pytest.mark.parametrize(
    "change", [lambda model: model, with_trees, with_exclusion], ids=["regression", "trees", "exclusion"]
)
def test_it_gives_the_labels_and_scores_of_the_package_on_test_rows(change, reader, of_texts, tmp_path):
    change(of_texts).save(tmp_path / "m", compact=True)
    package, own = XMLClassifier.load(tmp_path / "m"), reader.Model(tmp_path / "m")
    texts = TEST.texts[:80]
    rows = reader.rows_of(tmp_path / "m", texts)
    assert own.names() == package.classes_.tolist()
    for k in (5, 100):
        assert_same_answers([own.top_k(*row, k) for row in rows], *package.predict_topk(texts, k))


@pytest.mark.parametrize(
    "options",
    [
        {"ngram_range": (1, 2), "stop_words": ["The", "of"], "sublinear_tf": False},
        {"ngram_range": (2, 5), "analyzer": "char_wb", "min_df": 2},
        {"ngram_range": (4, 4), "analyzer": "char_wb"},
    ],
)
def test_it_makes_the_rows_of_the_package_by_all_options_of_texts(options, reader, tmp_path):
    vectorizer = TextVectorizer(**options).fit(TRAIN.texts)
    vectorizer.to_files(tmp_path)
    texts = [*TEST.texts[:100], "The a b cd, the\tCD cd!", ""]
    rows = vectorizer.rows_of(texts)
    for i, (features, values) in enumerate(reader.rows_of(tmp_path, texts)):
        np.testing.assert_array_equal(features, rows.row(i)[0])
        np.testing.assert_allclose(values, rows.row(i)[1], rtol=1e-5)


@pytest.mark.parametrize(
    "parameters", [{"hidden_layer_sizes": (24, 16)}, {"hidden_layer_sizes": (16,), "loss": "softmax"}]
)
def test_it_gives_those_of_a_network_alone_and_of_rows_of_numbers(parameters, reader, tmp_path):
    rows = make_xmc(400, 90, 30, nnz_per_row=8, labels_per_row=2)
    XMLClassifier(candidates=0, **parameters, **SETTINGS).fit(rows.X, rows.Y).save(tmp_path / "m", compact=True)
    package, own = XMLClassifier.load(tmp_path / "m", precision="float32"), reader.Model(tmp_path / "m")
    assert own.names() == [str(name) for name in range(30)]
    assert_same_answers([own.top_k(*rows.X.row(i), 5) for i in range(100)], *package.predict_topk(rows.X[:100], 5))


def test_it_reads_linear_weights_that_are_a_dense_matrix(reader, tmp_path):
    rows = make_xmc(600, 40, 80, nnz_per_row=8, labels_per_row=3, random_state=0)
    XMLClassifier((16,), **SETTINGS).fit(rows.X, rows.Y).save(tmp_path / "m", compact=True)
    package, own = XMLClassifier.load(tmp_path / "m", precision="float32"), reader.Model(tmp_path / "m")
    assert not len(own.c["linear_keys"])
    assert_same_answers([own.top_k(*rows.X.row(i), 5) for i in range(100)], *package.predict_topk(rows.X[:100], 5))


def test_its_command_answers_line_by_line_without_the_package(of_texts, tmp_path):
    of_texts.save(tmp_path / "m", compact=True)
    command = [sys.executable, "-I", str(READER), str(tmp_path / "m"), "2"]
    lines = subprocess.run(command, input="close a file\n\n", capture_output=True, text=True, check=True).stdout
    (best, *_), _ = of_texts.predict_topk(["close a file"], k=1)
    first, second = lines.splitlines()
    assert first.split(":")[0] == of_texts.classes_[best[0]]
    assert len(second.split("\t")) == 2


def test_it_imports_numpy_and_the_standard_library_alone():
    nodes = [node for node in ast.walk(ast.parse(READER.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in nodes}
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"numpy"}


def test_models_that_it_cannot_read_are_refused(of_texts, reader, tmp_path):
    of_texts.save(tmp_path / "m")
    with pytest.raises(SystemExit, match="must be one classifier, saved with compact=True"):
        reader.Model(tmp_path / "m")
