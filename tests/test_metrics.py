"""Metrics against plain loops written from their definitions, against scikit-learn, and against bad input."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, precision_recall_fscore_support

from xmlsgd import metrics
from xmlsgd.csr import CSR
from xmlsgd.errors import DataError

TOLERANCE: Any = {"rtol": 0, "atol": 1e-12}


# --- the definitions, in plain loops ----------------------------------------------------------------------------


def naive_precision(true, ranking, k):
    return sum(sum(label in labels for label in row[:k]) / k for labels, row in zip(true, ranking, strict=True)) / len(
        true
    )


def naive_recall(true, ranking, k):
    hits = [sum(label in labels for label in row[:k]) for labels, row in zip(true, ranking, strict=True)]
    return sum(hit / max(len(labels), 1) for hit, labels in zip(hits, true, strict=True)) / len(true)


def naive_ndcg(true, ranking, k, q=None):
    total = 0.0
    for labels, row in zip(true, ranking, strict=True):
        gain = sum((1 if q is None else q[x]) / math.log2(j + 2) for j, x in enumerate(row[:k]) if x in labels)
        ideal = sum(1 / math.log2(j + 2) for j in range(min(k, len(labels))))
        total += gain / ideal if labels else 0.0
    return total / len(true)


def naive_propensity(true, n_labels, A=0.55, B=1.5):
    counts = [sum(label in labels for labels in true) for label in range(n_labels)]
    C = (math.log(len(true)) - 1) * (B + 1) ** A
    return [1 + C * (count + B) ** -A for count in counts]


def naive_best(true, q):
    return [sorted(labels, key=lambda label: -q[label]) for labels in true]


def naive_psprecision(true, ranking, k, q):
    return sum(sum(q[x] for x in row[:k] if x in labels) / k for labels, row in zip(true, ranking, strict=True)) / len(
        true
    )


def naive_psrecall(true, ranking, k, q):
    gains = [sum(q[x] for x in row[:k] if x in labels) for labels, row in zip(true, ranking, strict=True)]
    return sum(gain / max(len(labels), 1) for gain, labels in zip(gains, true, strict=True)) / len(true)


def naive_counts(true, ranking, k, n_labels):
    predicted = [{label for label in row[:k] if label >= 0} for row in ranking]
    for label in range(n_labels):
        pairs = [(label in labels, label in found) for labels, found in zip(true, predicted, strict=True)]
        yield pairs.count((True, True)), pairs.count((False, True)), pairs.count((True, False))


def naive_macro_f1(true, ranking, k, n_labels, seen=False):
    values = [
        2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0
        for tp, fp, fn in naive_counts(true, ranking, k, n_labels)
        if tp + fn or not seen
    ]
    return sum(values) / len(values)


def naive_micro_f1(true, ranking, k, n_labels):
    tp, fp, fn = (sum(column) for column in zip(*naive_counts(true, ranking, k, n_labels), strict=True))
    return 2 * tp / (2 * tp + fp + fn)


def naive_coverage(true, ranking, k):
    found = {label for labels, row in zip(true, ranking, strict=True) for label in row[:k] if label in labels}
    return len(found) / len(set().union(*true))


# --- inputs -----------------------------------------------------------------------------------------------------


class Case:
    """Random true labels with rows empty and rows of fewer than k labels, and a ranking with padding."""

    def __init__(self, seed, n_rows=60, n_labels=25, width=7, padding=0.15):
        rng = np.random.default_rng(seed)
        Y = rng.random((n_rows, n_labels)) < rng.random(n_rows)[:, None] * 0.4
        Y[:: n_rows // 6] = False
        Y[:, 3] = False  # a label that no row has
        self.Y = CSR.from_scipy(sp.csr_array(Y.astype(np.float32)))
        self.dense = Y
        self.true = [set(np.flatnonzero(row).tolist()) for row in Y]
        self.n_labels = n_labels
        # True labels come more often than by chance, so that every term of a formula counts.
        scores = rng.random((n_rows, n_labels)) + Y * rng.random((n_rows, 1))
        self.scores = scores
        self.ranking = np.argsort(-scores, axis=1)[:, :width]
        self.padded = np.where(rng.random(self.ranking.shape) < padding, -1, self.ranking)
        self.lists = self.padded.tolist()
        self.q = naive_propensity(self.true, n_labels)


@pytest.fixture(params=range(4))
def case(request):
    return Case(request.param)


# --- each measure equals its definition -------------------------------------------------------------------------


def test_precision_equals_the_definition(case):
    expected = [naive_precision(case.true, case.lists, k) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.precision_at_k(case.Y, case.padded), expected, **TOLERANCE)


def test_recall_equals_the_definition(case):
    expected = [naive_recall(case.true, case.lists, k) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.recall_at_k(case.Y, case.padded), expected, **TOLERANCE)


def test_ndcg_equals_the_definition(case):
    expected = [naive_ndcg(case.true, case.lists, k) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.ndcg_at_k(case.Y, case.padded), expected, **TOLERANCE)


@pytest.mark.parametrize(("A", "B"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)])
def test_inverse_propensity_equals_the_definition(case, A, B):
    expected = naive_propensity(case.true, case.n_labels, A, B)
    np.testing.assert_allclose(metrics.inverse_propensity(case.Y, A, B), expected, **TOLERANCE)
    np.testing.assert_allclose(metrics.propensities(case.Y, A, B), 1 / np.array(expected), **TOLERANCE)


@pytest.mark.parametrize("normalize", [True, False])
def test_psprecision_equals_the_definition(case, normalize):
    best = naive_best(case.true, case.q)
    expected = [
        naive_psprecision(case.true, case.lists, k, case.q)
        / (naive_psprecision(case.true, best, k, case.q) if normalize else 1)
        for k in range(1, 6)
    ]
    got = metrics.psprecision_at_k(case.Y, case.padded, np.array(case.q), normalize=normalize)
    np.testing.assert_allclose(got, expected, **TOLERANCE)


@pytest.mark.parametrize("normalize", [True, False])
def test_psrecall_equals_the_definition(case, normalize):
    best = naive_best(case.true, case.q)
    expected = [
        naive_psrecall(case.true, case.lists, k, case.q)
        / (naive_psrecall(case.true, best, k, case.q) if normalize else 1)
        for k in range(1, 6)
    ]
    got = metrics.psrecall_at_k(case.Y, case.padded, np.array(case.q), normalize=normalize)
    np.testing.assert_allclose(got, expected, **TOLERANCE)


@pytest.mark.parametrize("normalize", [True, False])
def test_psndcg_equals_the_definition(case, normalize):
    best = naive_best(case.true, case.q)
    expected = [
        naive_ndcg(case.true, case.lists, k, case.q) / (naive_ndcg(case.true, best, k, case.q) if normalize else 1)
        for k in range(1, 6)
    ]
    got = metrics.psndcg_at_k(case.Y, case.padded, np.array(case.q), normalize=normalize)
    np.testing.assert_allclose(got, expected, **TOLERANCE)


@pytest.mark.parametrize("labels", ["all", "seen"])
def test_macro_f1_equals_the_definition(case, labels):
    expected = [naive_macro_f1(case.true, case.lists, k, case.n_labels, labels == "seen") for k in range(1, 6)]
    np.testing.assert_allclose(metrics.macro_f1_at_k(case.Y, case.padded, labels=labels), expected, **TOLERANCE)


def test_micro_f1_equals_the_definition(case):
    expected = [naive_micro_f1(case.true, case.lists, k, case.n_labels) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.micro_f1_at_k(case.Y, case.padded), expected, **TOLERANCE)


def test_coverage_equals_the_definition(case):
    expected = [naive_coverage(case.true, case.lists, k) for k in range(1, 6)]
    np.testing.assert_allclose(metrics.coverage_at_k(case.Y, case.padded), expected, **TOLERANCE)


# --- scikit-learn as the oracle ---------------------------------------------------------------------------------


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


# --- properties -------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_identities_between_the_measures(seed, k):
    case = Case(seed, n_rows=12, n_labels=9, width=9)
    precision = metrics.precision_at_k(case.Y, case.padded, k)
    assert len(precision) == k
    assert metrics.ndcg_at_k(case.Y, case.padded, k)[0] == precision[0]
    ones = np.ones(case.n_labels)
    np.testing.assert_allclose(
        metrics.psprecision_at_k(case.Y, case.padded, ones, k, normalize=False), precision, **TOLERANCE
    )
    if case.Y.nnz:
        best = [[*sorted(labels, key=lambda label: -case.q[label]), *[-1] * 9][:9] for labels in case.true]
        for function in (metrics.psprecision_at_k, metrics.psrecall_at_k, metrics.psndcg_at_k):
            np.testing.assert_allclose(function(case.Y, np.array(best), np.array(case.q), k), 1, **TOLERANCE)


def test_worked_example():
    # Row 0: true {0, 2}, ranked 2, 1, 0. Row 1: true {1}, ranked 0, 1. Row 2: nothing true.
    Y = sp.csr_array(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]]))
    ranking = np.array([[2, 1, 0], [0, 1, -1], [0, 1, 2]])
    d2, d3 = 1 / math.log2(3), 1 / 2
    np.testing.assert_allclose(metrics.precision_at_k(Y, ranking, 3), [1 / 3, (1 / 2 + 1 / 2) / 3, 1 / 3], **TOLERANCE)
    np.testing.assert_allclose(metrics.recall_at_k(Y, ranking, 3), [0.5 / 3, 1.5 / 3, 2 / 3], **TOLERANCE)
    expected = [1 / 3, (1 / (1 + d2) + d2) / 3, ((1 + d3) / (1 + d2) + d2) / 3]
    np.testing.assert_allclose(metrics.ndcg_at_k(Y, ranking, 3), expected, **TOLERANCE)
    np.testing.assert_allclose(metrics.coverage_at_k(Y, ranking, 3), [1 / 3, 2 / 3, 1], **TOLERANCE)


# --- forms of input ---------------------------------------------------------------------------------------------


def test_all_forms_of_true_labels_give_the_same(case):
    forms = [case.Y, case.Y.to_scipy(), sp.coo_matrix(case.dense), case.dense, case.dense.astype(int)]
    results = [metrics.ndcg_at_k(Y, case.padded) for Y in forms]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_explicit_zeros_are_absent_labels_and_other_values_count_as_one():
    Y = CSR(np.array([0, 2, 3, 3]), np.array([0, 1, 2], np.int32), np.array([0.0, -7.0, 0.0], np.float32), 3)
    ranking = np.array([[0, 1], [2, 0], [1, 2]])
    np.testing.assert_array_equal(metrics.recall_at_k(Y, ranking, 2), [0, 1 / 3])
    np.testing.assert_array_equal(metrics.inverse_propensity(Y)[[0, 2]], metrics.inverse_propensity(Y)[0])


def test_scores_and_their_ranking_give_the_same(case):
    expected = metrics.precision_at_k(case.Y, case.ranking, 7)
    forms = [
        case.scores,
        case.scores.astype(np.float32),
        sp.csr_array(case.scores),
        sp.coo_array(case.scores),
        CSR.from_scipy(sp.csr_array(case.scores)),
        case.ranking.astype(np.int32),
        case.ranking.astype(np.uint16),
        case.ranking.tolist(),
    ]
    for form in forms:
        np.testing.assert_array_equal(metrics.precision_at_k(case.Y, form, 7), expected)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, lambda s: CSR.from_scipy(sp.csr_array(s))])
def test_equal_scores_rank_by_the_smaller_label(form):
    scores = form(np.array([[1.0, 3.0, 3.0, 2.0, 3.0, 2.0]]))
    for label, expected in [(1, [1, 1, 1, 1]), (2, [0, 1, 1, 1]), (4, [0, 0, 1, 1]), (3, [0, 0, 0, 1]), (5, [0] * 4)]:
        Y = np.arange(6)[None] == label
        np.testing.assert_array_equal(metrics.recall_at_k(Y, scores, 4), expected)


def test_dense_scores_are_ranked_alike_in_any_chunk(case, monkeypatch):
    whole = metrics.precision_at_k(case.Y, case.scores)
    monkeypatch.setattr("xmlsgd.metrics.ranking.DENSE_CHUNK", 3 * case.n_labels + 1)
    np.testing.assert_array_equal(metrics.precision_at_k(case.Y, case.scores), whole)


def test_minus_infinity_and_unstored_scores_are_no_candidates():
    Y = np.array([[1, 1, 1]])
    dense = np.array([[-np.inf, 0.5, -np.inf]])
    np.testing.assert_array_equal(metrics.recall_at_k(Y, dense, 3), [1 / 3] * 3)
    np.testing.assert_array_equal(metrics.recall_at_k(Y, sp.csr_array(np.array([[0, 0.5, 0]])), 3), [1 / 3] * 3)


def test_duplicate_entries_of_scores_add_up_on_a_copy():
    scores = sp.csr_matrix((np.array([1.0, 2.0, 2.5]), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2))
    assert metrics.precision_at_k(np.array([[0, 1]]), scores, 1) == 1
    assert scores.data.tolist() == [1.0, 2.0, 2.5]


def test_rows_without_entries_and_labels_nowhere_true_score_zero():
    Y = np.zeros((4, 3))
    ranking = np.zeros((4, 0), dtype=int)
    q = np.ones(3)
    for result in (
        metrics.precision_at_k(Y, ranking, 2),
        metrics.recall_at_k(Y, ranking, 2),
        metrics.ndcg_at_k(Y, ranking, 2),
        metrics.psprecision_at_k(Y, ranking, q, 2),
        metrics.psndcg_at_k(Y, ranking, q, 2),
        metrics.psrecall_at_k(Y, ranking, q, 2),
        metrics.macro_f1_at_k(Y, ranking, 2, labels="seen"),
        metrics.micro_f1_at_k(Y, ranking, 2),
        metrics.coverage_at_k(Y, ranking, 2),
    ):
        np.testing.assert_array_equal(result, [0, 0])


# --- the table --------------------------------------------------------------------------------------------------


def test_evaluate_ranking_gives_the_table_in_percent(case):
    table = metrics.evaluate_ranking(case.Y, case.padded, case.Y, ks=(1, 5))
    assert list(table) == ["P@1", "P@5", "nDCG@1", "nDCG@5", "R@1", "R@5", "PSP@1", "PSP@5"]
    assert table["P@5"] == pytest.approx(100 * naive_precision(case.true, case.lists, 5), abs=1e-10)
    assert table["nDCG@1"] == table["P@1"]
    expected = metrics.psprecision_at_k(case.Y, case.padded, np.array(case.q))[4]
    assert table["PSP@5"] == pytest.approx(100 * expected, abs=1e-10)
    assert not any(key.startswith("PS") for key in metrics.evaluate_ranking(case.Y, case.scores))


def test_labels_that_were_never_trained_count_as_absent_from_training():
    Y_train, Y_test = np.eye(4)[:, :2], np.eye(4)
    q = metrics.inverse_propensity(Y_train, n_labels=4)
    np.testing.assert_array_equal(q[2:], metrics.inverse_propensity(np.zeros((4, 1))).repeat(2))
    assert metrics.evaluate_ranking(Y_test, np.arange(4)[:, None], Y_train)["PSP@1"] == pytest.approx(100)


# --- bad input --------------------------------------------------------------------------------------------------

Y23 = np.array([[1, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        (np.array([[0.1, np.nan, 0], [0, 0, 0]]), "got NaN in 1 of 6"),
        (sp.csr_array(np.array([[0.1, np.nan, 0], [0, 0, 0]])), "got NaN in 1 of 2"),
        (np.zeros((2, 4)), r"shape of Y_true \(2, 3\), got \(2, 4\); a ranking must be of integers"),
        (np.zeros((3, 3)), r"shape of Y_true \(2, 3\), got \(3, 3\)$"),
        (sp.csr_array((5, 3)), r"shape of Y_true \(2, 3\), got \(5, 3\)$"),
        (np.zeros((3, 2), dtype=int), "the 2 rows of Y_true, got 3"),
        (np.array([[0, 1], [2, 3]]), r"row 1: label must be in \[-1, 3\), got 3"),
        (np.array([[0, 1], [-2, 0]]), r"row 1: label must be in \[-1, 3\), got -2"),
        (np.array([[0, 1, 2], [1, 0, 1]]), "row 1: a label may occur once, got 1 twice"),
        (np.array([0, 1]), r"ranking \(n, k\) or scores \(n, L\), got int64 of shape \(2,\)"),
        (np.zeros((2, 3), dtype=bool), "got bool of shape"),
        (np.array([["a"], ["b"]]), "got <U1 of shape"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(predicted, message):
    with pytest.raises(DataError, match=message):
        metrics.precision_at_k(Y23, predicted)


@pytest.mark.parametrize("k", [0, -1, 2.0, "5", True, None])
def test_k_below_one_or_not_an_integer_is_refused(k):
    with pytest.raises(DataError, match="k: must be an integer of at least 1, got"):
        metrics.recall_at_k(Y23, np.zeros((2, 1), dtype=int), k)


def test_k_may_exceed_few_labels_but_not_without_bound():
    assert metrics.precision_at_k(Y23, np.zeros((2, 1), dtype=int), 100).shape == (100,)
    with pytest.raises(DataError, match="k: must be at most the number of labels 3, or 100, got 1000000000000"):
        metrics.precision_at_k(Y23, np.zeros((2, 1), dtype=int), 10**12)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (np.zeros(3), r"Y_true: must be a matrix of numbers, got float64 of shape \(3,\)"),
        (np.array([["a"]]), "Y_true: must be a matrix of numbers, got <U1"),
        (np.zeros((0, 3)), "Y_true: must have at least one row"),
        (np.array([[np.nan]]), "Y_true: row 0: values must be finite"),
    ],
)
def test_true_labels_that_are_no_matrix_are_refused(Y, message):
    with pytest.raises(DataError, match=message):
        metrics.precision_at_k(Y, np.zeros((len(Y), 1), dtype=int))


@pytest.mark.parametrize("q", [np.ones(2), np.ones((3, 1)), [1, np.nan, 1], [1, 0, 1]])
def test_inverse_propensities_that_do_not_fit_are_refused(q):
    with pytest.raises(DataError, match="inv_propensity: must"):
        metrics.psprecision_at_k(Y23, np.zeros((2, 1), dtype=int), q)


def test_propensities_of_too_few_rows_or_labels_are_refused():
    with pytest.raises(DataError, match="at least 3 rows, got 2"):
        metrics.inverse_propensity(Y23)
    with pytest.raises(DataError, match="at least the 3 columns of Y_train, got 2"):
        metrics.inverse_propensity(np.eye(3), n_labels=2)


def test_unknown_choice_of_labels_and_of_ks_is_refused():
    with pytest.raises(DataError, match='must be "all" or "seen", got \'some\''):
        metrics.macro_f1_at_k(Y23, np.zeros((2, 1), dtype=int), labels="some")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="ks: must be integers of at least 1"):
        metrics.evaluate_ranking(Y23, np.zeros((2, 1), dtype=int), ks=())
