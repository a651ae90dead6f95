"""Measures against plain loops written from their definitions, and against scikit-learn; the table of all."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, precision_recall_fscore_support

from shared.metric_definitions import (
    Case,
    naive_best,
    naive_coverage,
    naive_macro_f1,
    naive_micro_f1,
    naive_ndcg,
    naive_precision,
    naive_propensity,
    naive_psprecision,
    naive_psrecall,
    naive_recall,
)
from xmlsgd import metrics
from xmlsgd.errors import DataError

TOLERANCE: Any = {"rtol": 0, "atol": 1e-12}


def test_precision_equals_the_definition(case):
    expected = [naive_precision(case.true, case.lists, k) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.precision_at_k(case.Y, case.padded), expected, **TOLERANCE)


def test_recall_equals_the_definition(case):
    expected = [naive_recall(case.true, case.lists, k) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.recall_at_k(case.Y, case.padded), expected, **TOLERANCE)


def test_ndcg_equals_the_definition(case):
    expected = [naive_ndcg(case.true, case.lists, k) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.ndcg_at_k(case.Y, case.padded), expected, **TOLERANCE)


@pytest.mark.parametrize(("A", "B"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6), (1, 1)])
def test_inverse_propensity_equals_the_definition(case, A, B):
    expected = naive_propensity(case.true, case.n_labels, A, B)
    np.testing.assert_allclose(metrics.inverse_propensity(case.Y, A, B), expected, **TOLERANCE)


def test_psprecision_equals_the_definition(case):
    best = naive_best(case.true, case.q)
    expected = [
        naive_psprecision(case.true, case.lists, k, case.q) / naive_psprecision(case.true, best, k, case.q)
        for k in range(1, 6)
    ]
    got = metrics.psprecision_at_k(case.Y, case.padded, np.array(case.q))
    np.testing.assert_allclose(got, expected, **TOLERANCE)


def test_psrecall_equals_the_definition(case):
    best = naive_best(case.true, case.q)
    expected = [
        naive_psrecall(case.true, case.lists, k, case.q) / naive_psrecall(case.true, best, k, case.q)
        for k in range(1, 6)
    ]
    got = metrics.psrecall_at_k(case.Y, case.padded, np.array(case.q))
    np.testing.assert_allclose(got, expected, **TOLERANCE)


def test_psndcg_equals_the_definition(case):
    best = naive_best(case.true, case.q)
    expected = [
        naive_ndcg(case.true, case.lists, k, case.q) / naive_ndcg(case.true, best, k, case.q) for k in range(1, 6)
    ]
    got = metrics.psndcg_at_k(case.Y, case.padded, np.array(case.q))
    np.testing.assert_allclose(got, expected, **TOLERANCE)


def test_macro_f1_equals_the_definition(case):
    expected = [naive_macro_f1(case.true, case.lists, k, case.n_labels) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.macro_f1_at_k(case.Y, case.padded), expected, **TOLERANCE)


def test_micro_f1_equals_the_definition(case):
    expected = [naive_micro_f1(case.true, case.lists, k, case.n_labels) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.micro_f1_at_k(case.Y, case.padded), expected, **TOLERANCE)


def test_coverage_equals_the_definition(case):
    expected = [naive_coverage(case.true, case.lists, k) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.coverage_at_k(case.Y, case.padded), expected, **TOLERANCE)


def indicator(ranking, n_labels, k):
    matrix = np.zeros((len(ranking), n_labels), dtype=int)
    for i, row in enumerate(ranking):
        matrix[i, [label for label in row[:k] if label >= 0]] = 1
    return sp.csr_array(matrix)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_macro_and_micro_measures_equal_scikit_learn(case, k):
    top = indicator(case.lists, case.n_labels, k)
    truth = sp.csr_array(case.dense.astype(int))
    macro = precision_recall_fscore_support(truth, top, average="macro", zero_division=0)[:3]
    micro = precision_recall_fscore_support(truth, top, average="micro", zero_division=0)[2]
    functions = metrics.macro_precision_at_k, metrics.macro_recall_at_k, metrics.macro_f1_at_k
    ours = [function(case.Y, case.padded, k)[-1] for function in functions]
    np.testing.assert_allclose(ours, macro, **TOLERANCE)
    np.testing.assert_allclose(metrics.micro_f1_at_k(case.Y, case.padded, k)[-1], micro, **TOLERANCE)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_ndcg_equals_scikit_learn(case, k):
    # scikit-learn gives rows without a true label 0 as well.
    expected = ndcg_score(case.dense.astype(int), case.scores, k=k)
    np.testing.assert_allclose(metrics.ndcg_at_k(case.Y, case.scores, k)[-1], expected, **TOLERANCE)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_identities_between_the_measures(seed, k):
    case = Case(seed, n_rows=12, n_labels=9, width=9)
    precision = metrics.precision_at_k(case.Y, case.padded, k)
    assert len(precision) == k
    assert metrics.ndcg_at_k(case.Y, case.padded, k)[0] == precision[0]
    ones, ranks = np.ones(case.n_labels), np.arange(1, k + 1)
    possible = np.mean([np.minimum(len(labels), ranks) / ranks for labels in case.true], axis=0)
    np.testing.assert_allclose(
        metrics.psprecision_at_k(case.Y, case.padded, ones, k) * possible, precision, **TOLERANCE
    )
    if case.Y.nnz:
        best = [[*sorted(labels, key=lambda label: -case.q[label]), *[-1] * 9][:9] for labels in case.true]
        for function in (metrics.psprecision_at_k, metrics.psrecall_at_k, metrics.psndcg_at_k):
            np.testing.assert_allclose(function(case.Y, np.array(best), np.array(case.q), k), 1, **TOLERANCE)


def test_metrics_of_three_rows_are_those_computed_by_hand():
    # Row 0: true {0, 2}, ranked 2, 1, 0. Row 1: true {1}, ranked 0, 1. Row 2: nothing true.
    Y = sp.csr_array(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]]))
    ranking = np.array([[2, 1, 0], [0, 1, -1], [0, 1, 2]])
    d2, d3 = 1 / math.log2(3), 1 / 2
    np.testing.assert_allclose(metrics.precision_at_k(Y, ranking, 3), [1 / 3, (1 / 2 + 1 / 2) / 3, 1 / 3], **TOLERANCE)
    np.testing.assert_allclose(metrics.recall_at_k(Y, ranking, 3), [0.5 / 3, 1.5 / 3, 2 / 3], **TOLERANCE)
    expected = [1 / 3, (1 / (1 + d2) + d2) / 3, ((1 + d3) / (1 + d2) + d2) / 3]
    np.testing.assert_allclose(metrics.ndcg_at_k(Y, ranking, 3), expected, **TOLERANCE)
    np.testing.assert_allclose(metrics.coverage_at_k(Y, ranking, 3), [1 / 3, 2 / 3, 1], **TOLERANCE)


def test_evaluate_ranking_computes_each_usual_metric(case, monkeypatch):
    monkeypatch.setattr(metrics.evaluation, "USUAL_METRICS", ("coverage", "P"))
    assert [*metrics.evaluate_ranking(case.Y, case.padded, ks=[3])] == ["coverage@3", "P@3"]


def test_evaluate_ranking_gives_the_table_in_percent(case):
    table = metrics.evaluate_ranking(case.Y, case.padded, case.Y, ks=(1, 5))
    assert list(table) == ["P@1", "P@5", "nDCG@1", "nDCG@5", "R@1", "R@5", "PSP@1", "PSP@5"]
    assert table["P@5"] == pytest.approx(100 * naive_precision(case.true, case.lists, 5), abs=1e-10)
    assert table["nDCG@1"] == table["P@1"]
    expected = metrics.psprecision_at_k(case.Y, case.padded, np.array(case.q))[4]
    assert table["PSP@5"] == pytest.approx(100 * expected, abs=1e-10)
    q = metrics.inverse_propensity(case.Y)
    assert metrics.evaluate_ranking(case.Y, case.padded, ks=(1, 5), inv_propensity=q) == table
    with pytest.raises(DataError, match="inv_propensity: must be given without Y_train, got both"):
        metrics.evaluate_ranking(case.Y, case.padded, case.Y, inv_propensity=q)
    assert not any(key.startswith("PS") for key in metrics.evaluate_ranking(case.Y, case.scores))


def test_labels_that_were_never_trained_count_as_absent_from_training():
    Y_train, Y_test = np.eye(4)[:, :2], np.eye(4)
    q = metrics.inverse_propensity(Y_train, n_labels=4)
    np.testing.assert_array_equal(q[2:], metrics.inverse_propensity(np.zeros((4, 1))).repeat(2))
    assert metrics.evaluate_ranking(Y_test, np.arange(4)[:, None], Y_train)["PSP@1"] == pytest.approx(100)


def test_metrics_by_propensity_are_found_by_name_where_propensities_are_known(case):
    names = ("psprecision", "PSR", "psndcg", "PSnDCG", "psrecall_at_k")
    found = metrics.evaluate_ranking(case.Y, case.padded, Y_train=case.Y, ks=[3], metrics=names)
    assert list(found) == ["P@3", "nDCG@3", "R@3", "PSP@3", "PSR@3", "PSnDCG@3"]
    q = metrics.inverse_propensity(case.Y)
    for name in ("PSP", "PSR", "PSnDCG"):
        assert found[f"{name}@3"] == pytest.approx(100 * metrics.metric(name)(case.Y, case.padded, q, k=3)[2])
    with pytest.raises(DataError, match="metrics: PSnDCG needs propensities, got none; pass Y_train or inv_propensity"):
        metrics.evaluate_ranking(case.Y, case.padded, metrics=["psndcg"])
