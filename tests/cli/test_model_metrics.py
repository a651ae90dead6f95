"""How test rows are ranked to be measured: which rows, how often, at which k."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from shared.command_line import N_TEST, QUICK, ROWS, TEST_ROWS, run
from shared.planted import N_LABELS, planted, small
from xmlsgd.cli.model_metrics import (
    compare_precision,
    evaluate,
    evaluate_thresholds,
    inverse_propensity_or_none,
    rank_rows,
)
from xmlsgd.cli.results import size_numbers
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.estimators import XMLClassifier
from xmlsgd.metrics import expected_calibration_error, label_scores
from xmlsgd.metrics.propensity import inverse_propensity_of


@pytest.fixture(scope="module")
def model():
    """A model of which no training row has label 0."""
    X, Y = planted(1500)
    Y = Y.tolil()
    Y[:, 0] = 0
    return small(max_epochs=2).fit(X, Y.tocsr())


@pytest.fixture
def labelled():
    X, Y = planted(200, seed=9)
    return Dataset(CSR.from_scipy(X), CSR.from_scipy(Y))


@pytest.fixture
def rankings(monkeypatch):
    """Rows and k of each ranking, and of each prediction above a threshold."""
    asked = []

    def noting(ask):
        def noted(self, X, *arguments, **options):
            asked.append((X, next(iter(arguments), options.get("k"))))
            return ask(self, X, *arguments, **options)

        return noted

    for name in ("predict_topk", "predict"):
        monkeypatch.setattr(XMLClassifier, name, noting(getattr(XMLClassifier, name)))
    return asked


def test_labels_without_training_rows_do_not_widen_the_timed_ranking(model, labelled, rankings):
    result = evaluate(model, labelled, rank_rows(model, labelled.X, quiet=True))
    (X, k), (unseen, wide) = rankings
    assert (X.n_rows, k) == (200, 5)
    assert (unseen.n_rows, wide) == (result["zero_shot_labels"], 10)
    assert 0 < unseen.n_rows < 200


def test_labels_beyond_those_of_the_model_have_no_training_rows_either(labelled):
    X, Y = planted(1500)
    model = small(max_epochs=1, candidates=0).fit(X, Y)
    assert model.label_counts_.all()
    shifted = Dataset(labelled.X, replace(labelled.Y, indices=labelled.Y.indices + 1, n_cols=N_LABELS + 1))
    result = evaluate(model, shifted, rank_rows(model, labelled.X, quiet=True))
    assert (result["zero_shot_R@10"], result["zero_shot_labels"]) == (0, np.sum(shifted.Y.indices == N_LABELS))


def test_labels_without_training_rows_are_ranked_with_the_weights_of_the_ranking(labelled):
    X, Y = planted(1500)
    known = np.arange(N_LABELS) < N_LABELS // 2
    model = small(max_epochs=1, candidates=0).fit(X, Y.multiply(known).tocsr())
    none, some = (
        evaluate(model, labelled, rank_rows(model, labelled.X, quiet=True, label_weight=weight))["zero_shot_R@10"]
        for weight in (None, np.where(known, 1.0, 1e99))
    )
    assert none == 0 < some


@pytest.mark.parametrize("Y_train", [None, CSR.from_scipy(planted(50, seed=3)[1])])
def test_propensities_have_the_parameters_that_are_given(model, Y_train):
    found = inverse_propensity_or_none(model, N_LABELS + 2, Y_train, 0.6, 2.6)
    counts, n_rows = (model.label_counts_, 1500) if Y_train is None else (Y_train.column_counts(), 50)
    expected = inverse_propensity_of(counts, n_rows, 0.6, 2.6, N_LABELS + 2)
    np.testing.assert_array_equal(found, expected)


def test_no_copy_of_the_rows_is_made(model, labelled, rankings, monkeypatch):
    monkeypatch.setattr("xmlsgd.cli.model_metrics.BATCH", 64)
    rank_rows(model, labelled.X, quiet=True)
    assert [X.n_rows for X, _ in rankings] == [64, 64, 64, 8]
    assert all(np.shares_memory(X.data, labelled.X.data) for X, _ in rankings)


def test_f1_at_thresholds_is_that_of_predictions_and_ranks_no_row_again_that_is_known(model, labelled, rankings):
    ranking = rank_rows(model, labelled.X, N_LABELS, quiet=True)
    expected = [label_scores(labelled.Y, model.predict(labelled.X, name)) for name in ("micro", "macro")]
    rankings.clear()
    for known, n_asked in ((ranking, 0), (ranking._replace(label_weight=np.ones(N_LABELS)), 1)):
        found = evaluate_thresholds(model, labelled, known)[0]
        assert found["micro F1"] == pytest.approx(100 * expected[0].micro_f1)
        assert found["macro F1"] == pytest.approx(100 * expected[1].macro_f1)
        assert len(rankings) >= n_asked
        assert n_asked or not rankings


def test_results_hold_precision_and_recall_by_training_rows(model, labelled):
    result = evaluate(model, labelled, rank_rows(model, labelled.X, 7, quiet=True), ks=(1, 5, 7))
    rare, *known = json.loads(json.dumps(result["by_frequency"]))
    assert (rare["training_rows"], rare["labels"], rare["recall"]) == ([0, 0], 1, 0)
    assert sum(each["predicted_pairs"] for each in (rare, *known)) == 5 * labelled.n_rows
    n_hits = sum(each["predicted_pairs"] * (each["precision"] or 0) for each in known)
    assert n_hits / (5 * labelled.n_rows) == pytest.approx(result["P@5"])


def test_calibration_is_that_of_the_five_best_labels(model, labelled):
    labels, chances = model.predict_topk(labelled.X, 5, proba=True)
    result = evaluate(model, labelled, rank_rows(model, labelled.X, N_LABELS, quiet=True), ks=(1, 3, 5, N_LABELS))
    assert result["ECE@5"] == pytest.approx(100 * expected_calibration_error(labelled.Y, labels, chances))


def test_learning_ranks_test_rows_once_before_and_once_after(tmp_path, rankings):
    run("train", ROWS, "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs", "1")
    rankings.clear()
    run("learn", tmp_path / "m", ROWS, "--test", TEST_ROWS, "--json", tmp_path / "r.json", "--quiet")
    assert [(X.n_rows, k) for X, k in rankings] == [(N_TEST, 5)] * 2
    assert "P@5" in json.loads((tmp_path / "r.json").read_text())["before"]


def test_precision_is_compared_with_rows_paired():
    hits = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], bool)
    other = np.array([[1, 0], [1, 0], [0, 0], [0, 0]], bool)
    found = compare_precision(hits, other, [1, 2])
    assert found["P@1"]["other"] == 50
    assert found["P@2"]["difference"] == 50  # of 50, 0, 50 and 100
    half_width = 1.96 * np.std([50, 0, 50, 100], ddof=1) / 2
    assert found["P@2"]["interval"] == pytest.approx([50 - half_width, 50 + half_width])
    assert compare_precision(hits[:1], other[:1], [2])["P@2"] == {"other": 50, "difference": 50, "interval": None}


def test_the_size_of_rows_says_how_many_have_no_label():
    X, Y = (CSR.from_scipy(sp.csr_array(matrix)) for matrix in ([[1, 0], [2, 3], [0, 4]], [[0], [1], [0]]))
    sizes = {"rows": 3, "features": 2, "labels": 1, "nnz": 4, "label_nnz": 1, "rows_without_label": 2}
    assert size_numbers(Dataset(X, Y)) == sizes
