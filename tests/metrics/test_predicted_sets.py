"""Metrics of predicted sets and of groups of rows, against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_recall_fscore_support

from xmlsgd.errors import DataError
from xmlsgd.metrics import label_scores, precision_at_k, precision_by_group


def test_precision_recall_and_f1_of_labels_are_those_of_scikit_learn(case):
    predicted = np.random.default_rng(0).random(case.dense.shape) < 0.4
    found = label_scores(case.Y, predicted)
    expected = precision_recall_fscore_support(case.dense, predicted, zero_division=0)
    for ours, theirs in zip((found.precision, found.recall, found.f1, found.n_true), expected, strict=True):
        np.testing.assert_allclose(ours, theirs)
    np.testing.assert_array_equal(found.n_predicted, predicted.sum(axis=0))
    np.testing.assert_array_equal(found.n_hits, (predicted & (case.dense > 0)).sum(axis=0))
    for average, value in (("micro", found.micro_f1), ("macro", found.macro_f1)):
        assert value == pytest.approx(f1_score(case.dense, predicted, average=average, zero_division=0))


def test_predicted_sets_of_another_shape_are_refused(case):
    for wrong in (case.dense[1:], np.pad(case.dense, ((0, 0), (0, 1)))):
        with pytest.raises(DataError, match="Y_predicted: must have the shape"):
            label_scores(case.Y, wrong)


def test_rankings_and_scores_are_no_predicted_sets(case):
    for wrong in (case.padded, case.dense * 0.5):
        with pytest.raises(DataError, match=r"Y_predicted: must hold 0 and 1, got .*, not a ranking or scores"):
            label_scores(case.Y, wrong)
    with pytest.raises(DataError, match=r"Y_true: must hold 0 and 1, got 0\.5; "):
        label_scores(case.dense * 0.5, case.dense > 0)


def test_labels_that_a_model_does_not_know_are_never_predicted(case):
    known = case.Y.n_cols - 2
    predicted = (case.dense > 0.5).astype(int)
    predicted[:, known:] = 0
    for found, expected in zip(
        label_scores(case.Y, predicted[:, :known]), label_scores(case.Y, predicted), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_each_group_counts_the_same(case):
    groups = ["a"] + ["b"] * (case.Y.n_rows - 1)
    found = precision_by_group(case.Y, case.padded, groups, 3)
    single = [precision_at_k(case.dense[rows], case.padded[rows], 3)[-1] for rows in (slice(0, 1), slice(1, None))]
    np.testing.assert_allclose(found.precision, single)
    assert found.groups.tolist() == ["a", "b"]
    assert (found.mean, found.std) == (pytest.approx(np.mean(single)), pytest.approx(np.std(single)))


def test_groups_of_other_rows_are_refused(case):
    mixed = np.array(["a", 1] + [2] * (case.Y.n_rows - 2), object)
    for groups, message in (([1], "must have a text or an integer for each of"), (mixed, "must be all texts")):
        with pytest.raises(DataError, match=f"groups: {message}"):
            precision_by_group(case.Y, case.padded, groups)


def test_similar_rows_are_no_groups_of_a_metric(case):
    with pytest.raises(DataError, match=rf"for each of {case.Y.n_rows} rows, got 'similar'$"):
        precision_by_group(case.Y, case.padded, "similar")
