"""The way from the parameters that `train` returns to labels: `Scorer` and `Measure`, without an estimator."""

from __future__ import annotations

import numpy as np
import pytest

from xmlsgd import Job, Measure, Schedule, Scorer, XMLClassifier, make_xmc, precision_at_k, train
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.synthetic import split_rows
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.training.executors.serial import Serial


@pytest.fixture(scope="module")
def parts():
    rows, test = split_rows(make_xmc(600, 200, 50, nnz_per_row=8, labels_per_row=2, random_state=0))
    return rows, test, Network(rows.n_features, rows.n_labels, (16,))


@pytest.fixture(scope="module")
def params(parts):
    rows, _, network = parts
    return train(Job(rows, network), Sequential(32, 0.01), Serial([CPU(1)]), Schedule(4)).params


def test_what_train_returns_ranks_labels_on_any_device(parts, params):
    _, test, network = parts
    labels, scores = Scorer(network, params, CPU(1)).top_k(test.X, 3)
    assert (labels.dtype, scores.dtype, labels.shape) == (np.int32, np.float32, (test.n_rows, 3))
    expected, expected_scores = Scorer(network, params, Reference()).top_k(test.X, 3)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
    measured = Measure(test, network, CPU(1))(params)
    assert measured["P@1"] == pytest.approx(100 * precision_at_k(test.Y, labels, 1)[0])
    assert measured["P@1"] > 20


def test_rows_of_other_features_are_refused_before_a_kernel_reads_behind_the_weights(parts, params):
    rows, test, network = parts
    wide = make_xmc(5, 500, 50, nnz_per_row=8, labels_per_row=2, random_state=0).X
    scorer = Scorer(network, params, CPU(1))
    for ask in (lambda: scorer.top_k(wide, 1), lambda: list(scorer.logits(wide))):
        with pytest.raises(DataError, match=f"X: must have the {rows.n_features} features of the network, got 500"):
            ask()
    with pytest.raises(DataError, match="k: must be at least 1, got 0"):
        scorer.top_k(test.X, 0)


def test_parameters_of_another_network_are_refused(parts, params):
    with pytest.raises(DataError, match="params: must be the network's, of shape"):
        Scorer(parts[2], params[:-16], CPU(1))


@pytest.mark.parametrize("k", [1, 5, 33, 34, 65, 66, 67, 100])
def test_candidates_keep_their_scores_where_more_labels_are_asked_for_than_candidates_rank(k):
    """Two labels have votes and 64 are added by co-occurrence: a candidate that is not among the k best is no other."""
    rows, test = split_rows(make_xmc(600, 200, 120, nnz_per_row=8, labels_per_row=2, random_state=0))
    model = XMLClassifier((8,), candidates=2, max_epochs=1, random_state=0, n_jobs=1).fit(rows.X, rows.Y)
    scorer = model.fitted_.scorer(test.X, 1)
    assert scorer.max_k == 33
    labels, scores = scorer.top_k(test.X, k)
    for span, expected in scorer.logits(test.X):
        own = np.take_along_axis(expected, labels[span], axis=1)
        np.testing.assert_allclose(scores[span], own, rtol=1e-4, atol=1e-4)
