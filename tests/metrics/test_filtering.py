"""Pairs of a row and a label that are dropped from rankings."""

import numpy as np
import pytest

from xmlsgd.errors import DataError
from xmlsgd.metrics import drop_pairs, precision_at_k

LABELS = np.array([[4, 2, 7], [2, 4, 0]])
SCORES = np.array([[3.0, 2.0, 1.0], [6.0, 5.0, 4.0]])


def test_labels_behind_a_dropped_pair_move_up_in_its_row_alone():
    labels, scores = drop_pairs(LABELS, SCORES, [[0, 4], [1, 4], [1, 9], [0, 4]])
    np.testing.assert_array_equal(labels, [[2, 7, -1], [2, 0, -1]])
    np.testing.assert_array_equal(scores, [[2, 1, -np.inf], [6, 4, -np.inf]])
    np.testing.assert_array_equal(precision_at_k(np.eye(8)[[2, 0]], labels, 2), [1 / 2, 1 / 2])


def test_pairs_of_labels_that_are_not_ranked_may_have_any_number():
    labels, _ = drop_pairs(LABELS.astype(np.uint64), SCORES, np.array([[0, 2**64 - 1], [1, 2**40], [0, 4]], np.uint64))
    np.testing.assert_array_equal(labels, [[2, 7, -1], LABELS[1]])


@pytest.mark.parametrize("pairs", [[], np.empty((0, 2), int)])
def test_no_pairs_change_nothing(pairs):
    labels, scores = drop_pairs(LABELS, SCORES, pairs)
    np.testing.assert_array_equal(labels, LABELS)
    np.testing.assert_array_equal(scores, SCORES)


@pytest.mark.parametrize(
    ("labels", "scores", "pairs", "complaint"),
    [
        (LABELS, SCORES[:1], [[0, 1]], r"labels and scores: must be .* of one shape \(n, k\)"),
        (SCORES, SCORES, [[0, 1]], "labels and scores: must be integers"),
        (LABELS, SCORES.astype(object), [[0, 1]], r"and object of shape \(2, 3\); convert objects"),
        (LABELS, SCORES, [[0.0, 1.0]], r"pairs: must be integers of shape \(m, 2\), got float64"),
        (LABELS, SCORES, [0, 1], r"pairs: must be integers of shape \(m, 2\), got int64 of shape \(2,\)"),
        (LABELS, SCORES, [[2, 1]], r"pairs: must have rows in \[0, 2\) and labels from 0, got \[2, 1\]"),
        (LABELS, SCORES, [[0, -1]], r"labels from 0, got \[0, -1\]"),
    ],
)
def test_pairs_that_do_not_fit_are_refused(labels, scores, pairs, complaint):
    with pytest.raises(DataError, match=complaint):
        drop_pairs(labels, scores, pairs)
