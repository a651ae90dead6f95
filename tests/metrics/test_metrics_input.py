"""What measures take: every form of true labels, scores and rankings alike; what does not fit is refused."""

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd import metrics
from xmlsgd.data.csr import CSR
from xmlsgd.errors import DataError


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
    monkeypatch.setattr("xmlsgd.metrics.comparison.DENSE_CHUNK", 3 * case.n_labels + 1)
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


@pytest.mark.parametrize("dtype", ["f2", ">f4", ">f8", ">i2", ">u8", "?"])
def test_dense_labels_of_any_type_count(dtype):
    Y = np.array([[1, 0, 1], [0, 1, 0]]).astype(dtype)
    np.testing.assert_array_equal(metrics.precision_at_k(Y, np.array([[2, 1], [0, 1]]), 2), [0.5, 0.5])


def test_labels_in_no_order_are_refused():
    Y = CSR(np.array([0, 2]), np.array([2, 0], np.int32), np.ones(2, np.float32), 3)  # which a search would miss
    with pytest.raises(DataError, match="Y_true: indices: must rise within a row, but row 0 does not"):
        metrics.precision_at_k(Y, np.array([[0, 2]]), 2)


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
        metrics.macro_f1_at_k(Y, ranking, 2),
        metrics.micro_f1_at_k(Y, ranking, 2),
        metrics.coverage_at_k(Y, ranking, 2),
    ):
        np.testing.assert_array_equal(result, [0, 0])


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
        (np.array([[0, 1, 1], [1, 0, 1]]), "got 1 twice; of an indicator matrix pass the scores, or predict_topk"),
        (np.array([0, 1]), r"ranking \(n, k\) or scores \(n, L\), got int64 of shape \(2,\)"),
        (np.zeros((2, 3), dtype=bool), "got bool of shape"),
        (np.array([["a"], ["b"]]), "got <U1 of shape"),
        ([[0], [0, 1]], "predicted: must have rows of one length, got several; pad rankings with -1"),
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
        (np.array([["a"]]), r"Y_true: must be a matrix of numbers, got <U1 of shape \(1, 1\); convert lists of labels"),
        (
            [["a"], ["b", "c"]],
            r"Y_true: must be an indicator matrix, sparse or an array, got lists; convert lists of labels by",
        ),
        (np.zeros((0, 3)), "Y_true: must have at least one row"),
        (np.array([[np.nan]]), "Y_true: row 0: values must be finite"),
    ],
)
def test_true_labels_that_are_no_matrix_are_refused(Y, message):
    with pytest.raises(DataError, match=message):
        metrics.precision_at_k(Y, np.zeros((len(Y), 1), dtype=int))


DATES, TEXTS = np.array([1, 2, 3], "datetime64[D]"), ["1", "2", "3"]


@pytest.mark.parametrize("ks", [DATES, TEXTS, "13", 0, 2.5, [1.0], [True], [], [1, 0], None])
def test_ranks_that_are_no_positive_integers_are_refused(ks):
    with pytest.raises(DataError, match="ks: must be integers of at least 1, got"):
        metrics.evaluate_ranking(Y23, np.zeros((2, 1), dtype=int), ks=ks)


@pytest.mark.parametrize(
    "q", [np.ones(2), np.ones((3, 1)), [1, np.nan, 1], [1, 0, 1], [1, 1e308, 1], DATES, TEXTS, [1, [2], 3], [1j, 1, 1]]
)
def test_inverse_propensities_that_do_not_fit_are_refused(q):
    with pytest.raises(DataError, match="inv_propensity: must"):
        metrics.psprecision_at_k(Y23, np.zeros((2, 1), dtype=int), q)


def test_inverse_propensities_of_other_labels_are_counted():
    with pytest.raises(DataError, match="inv_propensity: must have a number for each of 3 labels, got 2 numbers"):
        metrics.psprecision_at_k(Y23, np.zeros((2, 1), dtype=int), np.ones(2))


def test_training_rows_with_more_labels_than_the_true_ones_are_refused():
    with pytest.raises(DataError, match="Y_train: must have at most the 3 labels of Y_true, got 4; give both the same"):
        metrics.evaluate_ranking(Y23, np.zeros((2, 1), dtype=int), np.eye(4))


@pytest.mark.parametrize(
    ("A", "B"), [(0.5, -2), (0.5, 0), (-1, 1), (np.nan, 1), (0.5, np.inf), ("x", 1), (None, 1), (1e300, 1)]
)
def test_a_form_of_propensities_that_is_none_is_refused(A, B):
    with pytest.raises(DataError, match=r"A and B: must be numbers, A in \[0, 10\] and B in \(0, 1e\+20\], got"):
        metrics.inverse_propensity(np.eye(4), A, B)


@pytest.mark.parametrize("n_labels", ["x", 7.5, 10**30, True])
def test_a_number_of_labels_that_is_none_is_refused(n_labels):
    with pytest.raises(DataError, match="n_labels: must be at least the 4 labels of training, got"):
        metrics.inverse_propensity(np.eye(4), n_labels=n_labels)


def test_propensities_of_too_few_rows_or_labels_are_refused():
    with pytest.raises(DataError, match="at least 3 training rows, got 2"):
        metrics.inverse_propensity(Y23)
    with pytest.raises(DataError, match="at least the 3 labels of training, got 2"):
        metrics.inverse_propensity(np.eye(3), n_labels=2)


def test_ranks_without_a_number_are_refused():
    with pytest.raises(DataError, match="ks: must be integers of at least 1"):
        metrics.evaluate_ranking(Y23, np.zeros((2, 1), dtype=int), ks=())


MASKED = np.ma.masked_array


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Y_true", lambda Y, ranking: metrics.ndcg_at_k(MASKED(Y), ranking)),
        ("predicted", lambda Y, ranking: metrics.ndcg_at_k(Y, MASKED(ranking))),
        ("predicted", lambda Y, ranking: metrics.ndcg_at_k(Y, MASKED(Y / 2))),
        ("Y_predicted", lambda Y, ranking: metrics.label_scores(Y, MASKED(Y))),
        ("Y_train", lambda Y, ranking: metrics.inverse_propensity(MASKED(Y))),
        ("inv_propensity", lambda Y, ranking: metrics.psndcg_at_k(Y, ranking, MASKED(np.ones(Y.shape[1])))),
        ("groups", lambda Y, ranking: metrics.precision_by_group(Y, ranking, MASKED(np.arange(len(Y))))),
        ("labels", lambda Y, ranking: metrics.reliability(Y, MASKED(ranking), np.ones(ranking.shape))),
        ("probabilities", lambda Y, ranking: metrics.reliability(Y, ranking, MASKED(np.ones(ranking.shape)))),
    ],
)
def test_masked_arrays_are_refused_as_masked_values_would_count(case, name, call):
    with pytest.raises(DataError, match=f"^{name}: masked arrays are not supported"):
        call(case.dense, case.ranking)


def test_names_of_classes_are_refused_with_what_makes_a_matrix_of_them():
    with pytest.raises(DataError, match=r"convert names of classes by label_binarize\(names, classes=model.classes_\)"):
        metrics.precision_at_k(np.array(["art", "music"]), [[0], [1]])


@pytest.mark.parametrize("lists", [[["art"], ["art", "music"]], [[1, 0], [0, 1]], [(0,), (1,)], [{0}, {1}], [[], [1]]])
def test_lists_of_labels_are_refused_with_what_makes_a_matrix_of_them(lists):
    """Lists of equal length that hold numbers would be read as the rows of a matrix."""
    for call in (metrics.precision_at_k, metrics.label_scores):
        with pytest.raises(DataError, match=r"Y_true: must be an indicator .* convert lists of labels by MultiLabelB"):
            call(lists, np.array([[0, 1], [1, 0]]))
    with pytest.raises(DataError, match="Y_train: must be an indicator matrix, sparse or an array, got lists"):
        metrics.inverse_propensity(lists)
