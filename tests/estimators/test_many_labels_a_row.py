"""Rankings longer than the candidates of a row: the network ranks the rest, and no score of all labels is made."""

from __future__ import annotations

import numpy as np
import pytest

from shared.planted import planted, small
from xmlsgd import XMLEnsemble
from xmlsgd.estimators.inference import scorer


@pytest.fixture(scope="module")
def listed():
    X, Y = planted(1200)
    return small(candidates=8, max_epochs=3).fit(X, np.pad(Y.toarray(), ((0, 0), (0, 260))))


@pytest.mark.parametrize("k", [9, 15, 24, 100, 200])
def test_a_long_ranking_is_that_of_all_scores(listed, held_out, k):
    X, _ = held_out
    labels, scores = listed.predict_topk(X, k)
    whole = listed.decision_function(X)
    expected = -np.sort(-whole, axis=1)[:, :k]
    np.testing.assert_allclose(scores, expected, atol=1e-3)
    np.testing.assert_allclose(np.take_along_axis(whole, labels.astype(int), axis=1), scores, atol=1e-3)
    assert all(len(set(row)) == k for row in labels.tolist())


def test_a_long_ranking_begins_with_a_short_one(listed, held_out):
    X, _ = held_out
    np.testing.assert_array_equal(listed.predict_topk(X, 100)[0][:, :5], listed.predict_topk(X, 5)[0])


def test_scores_of_all_labels_are_made_for_no_k_up_to_a_hundred(listed, held_out, monkeypatch):
    def refused(*args):
        raise AssertionError("all labels were scored")

    monkeypatch.setattr("xmlsgd.estimators.inference.candidate_scorer.best_of_all", refused)
    monkeypatch.setattr("xmlsgd.estimators.inference.rankings.best_of_all", refused)
    several = XMLEnsemble(listed)
    several._set_members([listed, listed])
    for model in (listed, several):
        labels, _ = model.predict_topk(held_out[0], 100)
        assert (labels >= 0).all()
    assert scorer.FILLED_K >= 200
