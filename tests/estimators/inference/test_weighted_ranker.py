"""Rankings by chance times what a label counts."""

from __future__ import annotations

import numpy as np
import pytest

from xmlsgd.data.csr import CSR
from xmlsgd.estimators.calibration import UNCALIBRATED
from xmlsgd.estimators.inference.rankings import WeightedRanker

N_REWEIGHTED = 32


def weighted(ranker, weight, log_odds):
    return WeightedRanker(ranker, weight, log_odds, N_REWEIGHTED)


class Given:
    """A ranker whose logits are given; rows are told apart by their one feature."""

    def __init__(self, Z):
        self.Z, self.asked = np.asarray(Z, np.float32), []

    def top_k(self, X, k, columns=None):
        self.asked.append(k)
        Z = self.Z[X.indices]
        columns = np.arange(Z.shape[1]) if columns is None else np.asarray(columns)
        order = columns[np.argsort(-Z[:, columns], axis=1, kind="stable")][:, :k]
        labels, scores = np.full((len(Z), k), -1, np.int32), np.full((len(Z), k), -np.inf, np.float32)
        labels[:, : order.shape[1]] = order
        scores[:, : order.shape[1]] = np.take_along_axis(Z, order, axis=1)
        return labels, scores


def rows(n):
    return CSR(np.arange(n + 1), np.arange(n, dtype=np.int32), np.ones(n, np.float32), n)


def test_labels_go_by_weight_times_probability_worked_by_hand():
    chances = np.array([[0.5, 0.4, 0.1], [0.5, 0.25, 0.25]])
    ranker = weighted(Given(np.log(chances / (1 - chances))), np.array([1.0, 2.0, 4.0]), UNCALIBRATED.log_odds)
    labels, scores = ranker.top_k(rows(2), 3)
    assert labels.tolist() == [[1, 0, 2], [2, 0, 1]], "of 0.5 and 0.5 the smaller label goes first"
    np.testing.assert_allclose(np.exp(scores), [[0.8, 0.5, 0.4], [1.0, 0.5, 0.5]], rtol=1e-6)


def test_with_softmax_scores_are_logs_up_to_a_constant():
    Z = np.array([[1.0, 0.5, -1.0]])
    labels, scores = weighted(Given(Z), np.exp([0.0, 1.0, 0.0]), None).top_k(rows(1), 2)
    assert labels.tolist() == [[1, 0]]
    np.testing.assert_allclose(scores, [[1.5, 1.0]], rtol=1e-6)
    labels, _ = weighted(Given([[0.0, 1.0]]), np.exp([1.0, 0.0]), None).top_k(rows(1), 2)
    assert labels.tolist() == [[0, 1]], "of equal scores the smaller label goes first, though it is less likely"


@pytest.mark.parametrize("block", [1 << 26, 1])
def test_the_best_of_the_likeliest_in_blocks_too(monkeypatch, block):
    monkeypatch.setattr("xmlsgd.estimators.inference.scorer.ROW_BLOCK_BYTES", block)
    rng = np.random.default_rng(0)
    Z, weight = rng.standard_normal((7, 100)), rng.uniform(0.1, 10, 100)
    given = Given(Z)
    labels, scores = weighted(given, weight, UNCALIBRATED.log_odds).top_k(rows(7), 5)
    assert set(given.asked) == {N_REWEIGHTED}
    for row, best, of_best in zip(Z.astype(np.float32), labels, scores, strict=True):
        likeliest = np.argsort(-row, kind="stable")[:N_REWEIGHTED]
        gain = np.log(weight[likeliest] / (1 + np.exp(-row[likeliest])))
        order = np.argsort(-gain, kind="stable")[:5]
        np.testing.assert_array_equal(best, likeliest[order])
        np.testing.assert_allclose(of_best, gain[order], rtol=1e-5)


def test_where_few_labels_count_the_rest_is_filled_up():
    labels, scores = weighted(Given(np.zeros((1, 9))), np.arange(1.0, 10.0), UNCALIBRATED.log_odds).top_k(
        rows(1), 4, [2, 7]
    )
    assert labels.tolist() == [[7, 2, -1, -1]]
    assert scores[0, 2:].tolist() == [-np.inf] * 2


def test_more_labels_than_candidates_may_be_asked_for():
    given = Given(np.zeros((1, 60)))
    ranker = weighted(given, np.ones(60), UNCALIBRATED.log_odds)
    assert ranker.top_k(rows(1), 50)[0].tolist() == [list(range(50))]
    assert given.asked == [50]
