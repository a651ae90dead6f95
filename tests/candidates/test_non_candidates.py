"""Scores of labels that are not candidates of their row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from shared.candidates import SETTINGS
from xmlsgd import XMLClassifier
from xmlsgd.candidates.non_candidates import CENTERS, NonCandidateScores, count_non_candidates
from xmlsgd.candidates.serialization import from_arrays, to_arrays
from xmlsgd.candidates.stacking import MIN_NETWORK, LogisticStacking, log_probability
from xmlsgd.candidates.stacking_training import weights_of_true
from xmlsgd.data.csr import CSR
from xmlsgd.data.files.folders import FolderArrays
from xmlsgd.devices.cpu import CPU
from xmlsgd.errors import ModelFileError

STACKING = LogisticStacking()


def counted(logits: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the counts of labels with these logits."""
    bins = np.abs(logits[:, None] - CENTERS).argmin(axis=1)
    return np.stack([np.bincount(bins[truth == each], minlength=len(CENTERS)) for each in (False, True)]).astype(float)


def test_the_weights_of_a_logistic_model_are_found():
    rng = np.random.default_rng(0)
    logits = rng.normal(-3, 3, size=30_000)
    odds = 0.6 * log_probability(logits) - 2
    scores = NonCandidateScores.fit(counted(logits, rng.random(30_000) < expit(odds)), STACKING)
    np.testing.assert_allclose(scores, [0.6, -2], atol=0.05)
    np.testing.assert_allclose(
        scores.log_odds(np.float32([0])), scores.intercept - scores.network * np.log(2), rtol=1e-5
    )


def test_where_only_few_labels_are_true_probabilities_sum_up_to_them():
    logits, truth = np.linspace(-12, -6, 20_000), np.zeros(20_000, bool)
    truth[[4_000, 11_000, 15_000, 19_000]] = True
    probabilities = expit(NonCandidateScores.fit(counted(logits, truth), STACKING).log_odds(logits))
    assert 3.9 < probabilities.sum() < 5.1  # one more is counted


@pytest.mark.parametrize("n", [1, 20, 20_000])
def test_where_no_label_is_true_probabilities_sum_up_to_what_stacking_says_at_most_one(n):
    logits = np.linspace(-12, -6, n)
    learned = NonCandidateScores.fit(counted(logits, np.zeros(n, bool)), STACKING)
    sums = [expit(each.log_odds(logits)).sum() for each in (learned, NonCandidateScores.from_stacking(STACKING))]
    assert sums[0] == pytest.approx(min(sums[1], 1), rel=0.02)


def test_without_any_other_label_scores_are_those_of_stacking():
    assert NonCandidateScores.fit(np.zeros((2, len(CENTERS))), STACKING) == NonCandidateScores.from_stacking(STACKING)


def test_a_network_that_ranks_the_wrong_way_round_still_gives_the_order():
    logits = np.repeat([-8.0, -2.0], 1000)
    scores = NonCandidateScores.fit(counted(logits, np.arange(2000) < 100), STACKING)
    assert scores.network == MIN_NETWORK
    assert expit(scores.log_odds(logits)).mean() == pytest.approx(0.05, rel=0.05)


def test_candidates_and_labels_that_only_held_out_rows_have_are_not_counted():
    labels = np.int32([[2, 0], [-1, -1], [1, -1]])
    frequency = np.float32([3, 3, 3, 3, 0])
    Y = CSR.from_scipy(sp.csr_array([[1, 1, 0, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 1, 0]], dtype=np.float32))
    logits = np.float32([[9, 1, 9, 2, 3], [9, 9, 9, 9, 9], [0, 9, 0, -99, 4]])
    blocks = [(np.array([0, 1]), logits[:2] - 1), (np.array([2]), logits[2:] - 1)]
    W, b = np.eye(5, dtype=np.float32), np.ones(5, np.float32)
    false, true = count_non_candidates(blocks, W, b, Y, labels, frequency, 100, CPU(2))
    assert {float(CENTERS[at]) // 1: false[at] for at in np.flatnonzero(false)} == {2: 1, 0: 2, 4: 1}
    weight = weights_of_true(frequency[1], 100)
    assert {float(CENTERS[at]) // 1: true[at] for at in np.flatnonzero(true)} == {1: weight, -32: weight}


def test_logits_that_are_no_numbers_are_in_the_first_and_the_last_bin():
    A, W = np.ones((1, 1), np.float32), np.float32([[np.nan], [-np.inf], [np.inf], [-1e30], [1e30], [0]])
    Y = CSR.from_scipy(sp.csr_array((1, 6), dtype=np.float32))
    labels, frequency = np.int32([[5]]), np.ones(6, np.float32)
    blocks = [(np.array([0]), A)]
    false, _ = count_non_candidates(blocks, W, np.zeros(6, np.float32), Y, labels, frequency, 100, CPU(1))
    assert (false[0], false[-1], false.sum()) == (3, 2, 5)


def test_probabilities_of_all_labels_sum_up_to_the_true_ones(many, model):
    (X, Y), fresh = (many[0].X, many[0].Y), many[1]
    models = (
        model,
        XMLClassifier(**{**SETTINGS, "random_state": 1}).fit(X, Y),
    )  # two, as the sum of one varies by a tenth
    sums = [each.predict_proba(fresh.X).sum() for each in models]
    assert np.mean(sums) == pytest.approx(fresh.Y.nnz, rel=0.15)


def test_of_a_model_that_was_saved_without_them_the_error_says_what_is_missing(model):
    described, arrays = to_arrays(model.candidates_)
    del described["non_candidates"]
    with pytest.raises(ModelFileError, match=r"must have 'non_candidates', got a model without.*; train it again"):
        from_arrays(described, FolderArrays(arrays, Path("model")), (1500, 1100))
