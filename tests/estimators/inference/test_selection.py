"""Labels above a threshold, and rankings without excluded labels, by rankers that note what they are asked."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmlsgd.data.csr import CSR
from xmlsgd.estimators.inference.rankings import FIRST_K, ExcludingRanker, labels_above


class Given:
    """Ranks labels by scores that are given for each row; X has the number of the row."""

    def __init__(self, scores):
        self.scores, self.asked = np.asarray(scores, np.float32), []

    def top_k(self, X, k, columns=None):
        rows = X.data.astype(int) - 1
        self.asked.append((len(rows), k))
        Z = self.scores[rows]
        if columns is not None:
            Z = np.where(np.isin(np.arange(Z.shape[1]), columns), Z, -np.inf)
        labels = np.argsort(-Z, axis=1, kind="stable")[:, :k].astype(np.int32)
        found = np.take_along_axis(Z, labels, axis=1)
        return np.where(np.isneginf(found), -1, labels), found

    def logits(self, X, columns=None):
        yield from ()


def numbered(n):
    return CSR.from_scipy(sp.csr_array(np.arange(1.0, n + 1)[:, None].astype(np.float32)))


def asking(ranker, n_rows):
    """Ask for the labels of some of `n_rows` rows, whose scores are probabilities."""

    def ask(rows, k):
        labels, scores = ranker.top_k(numbered(n_rows).take(rows), k)
        return labels, scores.astype(float)

    return ask


def test_labels_above_are_all_that_reach_their_threshold():
    rng = np.random.default_rng(0)
    scores, thresholds = rng.random((50, 100)), rng.random(100)
    row, label, chance = labels_above(asking(Given(scores), 50), 50, thresholds)
    expected = np.nonzero(scores.astype(np.float32) >= thresholds)
    np.testing.assert_array_equal(row, expected[0])
    np.testing.assert_array_equal(label, expected[1])
    np.testing.assert_array_equal(chance, scores.astype(np.float32)[expected])


def test_only_rows_with_many_labels_are_asked_for_more():
    scores = np.zeros((10, 1000))
    scores[3, :40] = 1
    ranker = Given(scores)
    row, label, _ = labels_above(asking(ranker, 10), 10, np.full(1000, 0.5))
    assert (row.tolist(), label.tolist()) == ([3] * 40, list(range(40)))
    assert ranker.asked == [(10, FIRST_K), (1, 4 * FIRST_K)]


def test_rows_that_were_ranked_before_are_not_ranked_again():
    scores = np.zeros((10, 1000))
    scores[3, :4], scores[5, 7] = 1, 1
    ranker = Given(scores)
    ask = asking(ranker, 10)
    first = ask(np.arange(10), 2)
    ranker.asked.clear()
    row, label, _ = labels_above(ask, 10, np.full(1000, 0.5), first)
    assert (row.tolist(), label.tolist()) == ([3, 3, 3, 3, 5], [0, 1, 2, 3, 7])
    assert ranker.asked == [(1, 8)]


def test_blocks_shrink_as_rows_are_asked_for_more_labels(monkeypatch):
    monkeypatch.setattr("xmlsgd.estimators.inference.scorer.ROW_BLOCK_BYTES", 4 * 8 * FIRST_K * 8)
    ranker = Given(np.ones((20, 300)))
    row, *_ = labels_above(asking(ranker, 20), 20, np.zeros(300))
    assert np.bincount(row).tolist() == [300] * 20
    assert max(n for n, k in ranker.asked if k == FIRST_K) == 8
    assert {n for n, k in ranker.asked if k == 4 * FIRST_K} == {2}
    assert {n for n, k in ranker.asked if k > 8 * FIRST_K} == {1}


def test_excluded_labels_make_room_for_the_next_ones():
    rng = np.random.default_rng(1)
    scores = rng.random((30, 60))
    excluded = rng.random(60) < 0.5
    labels, found = ExcludingRanker(Given(scores), excluded).top_k(numbered(30), 5)
    left = np.where(excluded, -np.inf, scores)
    np.testing.assert_array_equal(labels, np.argsort(-left, axis=1)[:, :5])
    np.testing.assert_allclose(found, np.take_along_axis(scores, labels.astype(int), axis=1), rtol=1e-6)


def test_where_few_labels_are_left_the_rest_is_filled_up():
    scores = np.tile(np.arange(6.0), (2, 1))
    excluded = np.array([True, False, True, True, True, False])
    labels, found = ExcludingRanker(Given(scores), excluded).top_k(numbered(2), 4)
    assert labels.tolist() == [[5, 1, -1, -1]] * 2
    assert np.isneginf(found[:, 2:]).all()
    labels, _ = ExcludingRanker(Given(scores), excluded).top_k(numbered(2), 4, np.array([0, 1]))
    assert labels.tolist() == [[1, -1, -1, -1]] * 2


def test_most_rows_are_asked_once():
    scores = np.tile(np.arange(1000.0)[::-1], (4, 1))
    scores[2] = np.arange(1000.0)
    excluded = np.arange(1000) >= 900
    ranker = Given(scores)
    labels, _ = ExcludingRanker(ranker, excluded).top_k(numbered(4), 3)
    assert labels.tolist() == [[0, 1, 2], [0, 1, 2], [899, 898, 897], [0, 1, 2]]
    assert [n for n, _ in ranker.asked] == [4, 1, 1]
