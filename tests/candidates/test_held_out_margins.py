"""Held-out rows, scored by linear classifiers before these learn them, too."""

from __future__ import annotations

import numpy as np
import pytest

from shared.candidates import DEVICE, fit_linear, ones
from xmlsgd import make_xmc
from xmlsgd.candidates import linear
from xmlsgd.candidates.fitting import CandidateRows, fit_base_models
from xmlsgd.candidates.linear import MARGIN_WITHOUT_ROWS, HeldOutLabels, LinearClassifiers, find_pairs
from xmlsgd.data.csr import CSR

HELD_OUT = np.arange(0, 600, 12)


@pytest.fixture(scope="module")
def candidates() -> np.ndarray:
    return np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)


@pytest.fixture(scope="module")
def scored(data, candidates) -> HeldOutLabels:
    """True labels of the held-out rows, and ten others that they are pairs of."""
    Y = data.Y.take(HELD_OUT)
    true = np.full((len(HELD_OUT), np.diff(Y.indptr).max()), -1, np.int32)
    for i in range(len(HELD_OUT)):
        true[i, : Y.indptr[i + 1] - Y.indptr[i]] = Y.indices[Y.indptr[i] : Y.indptr[i + 1]]
    others = candidates[HELD_OUT, :10]
    labels = np.concatenate([true, np.where(Y.has(others), -1, others)], axis=1)
    return HeldOutLabels(HELD_OUT, labels, np.zeros(len(HELD_OUT), np.int32))


@pytest.fixture
def to_the_end(monkeypatch):
    """Machines are solved until hardly anything changes."""
    for name, value in (("TOLERANCE", 1e-5), ("PASSES", 3000), ("MORE_PASSES", 3000), ("MIN_WEIGHT", 0.0)):
        monkeypatch.setattr(linear, name, value)


def learn_all(data, rows, candidates, scored, all_features=False) -> tuple[LinearClassifiers, np.ndarray]:
    with DEVICE.start():
        pairs = find_pairs(rows, data.Y, ones(600), candidates.copy(), DEVICE)
        pairs = pairs._replace(all_features=all_features)
        return LinearClassifiers.fit_and_score(pairs, 1.0, scored, DEVICE)


def learn_others(data, rows, candidates, scored, all_features=False) -> np.ndarray:
    """Return the margins of classifiers that have never seen the held-out rows."""
    weight = ones(600)
    weight[HELD_OUT] = 0
    with DEVICE.start():
        pairs = find_pairs(rows, data.Y, weight, candidates.copy(), DEVICE)._replace(all_features=all_features)
        without, _ = LinearClassifiers.fit_and_score(pairs, 1.0, linear.NONE_HELD_OUT, DEVICE)
        return without.margins(rows.take(HELD_OUT), scored.labels, DEVICE)


def test_held_out_rows_get_the_margins_of_classifiers_that_never_saw_them(data, rows, candidates, scored):
    _, margins = learn_all(data, rows, candidates, scored)
    expected, found = learn_others(data, rows, candidates, scored), scored.labels >= 0
    np.testing.assert_array_equal(np.isnan(margins), ~found)
    off = np.abs(margins - expected)[found]
    assert off.mean() < 0.03
    assert off.max() < 0.3


def test_learning_to_the_end_gives_the_very_margins(data, rows, candidates, scored, to_the_end):
    _, margins = learn_all(data, rows, candidates, scored, all_features=True)
    expected, found = learn_others(data, rows, candidates, scored, all_features=True), scored.labels >= 0
    np.testing.assert_allclose(margins[found], expected[found], atol=2e-3)


def test_the_classifiers_learn_the_rows_that_they_have_scored(data, rows, candidates, scored, to_the_end):
    found, margins = learn_all(data, rows, candidates, scored)
    with DEVICE.start():
        plain = fit_linear(rows, data.Y, ones(600), candidates)
        of_held_out = found.margins(rows.take(HELD_OUT), scored.labels, DEVICE)
    np.testing.assert_allclose(found.bias, plain.bias, atol=2e-3)
    np.testing.assert_allclose(found.weights.to_scipy().toarray(), plain.weights.to_scipy().toarray(), atol=2e-3)
    true = data.Y.take(HELD_OUT).has(scored.labels)
    assert of_held_out[true].mean() > margins[true].mean() + 0.1


def test_weights_that_are_too_small_to_be_kept_do_not_count(data, rows, candidates, scored, monkeypatch):
    monkeypatch.setattr(linear, "MIN_WEIGHT", 100.0)
    found, margins = learn_all(data, rows, candidates, scored)
    assert found.weights.nnz == 0
    for label in np.unique(scored.labels[scored.labels >= 0]):
        assert np.ptp(margins[scored.labels == label]) == 0  # all are the bias


def test_a_label_of_held_out_rows_alone_has_no_margins():
    Y = CSR(np.arange(13), np.array([0] * 6 + [1] * 6, np.int32), ones(12), 2)
    X = CSR(np.arange(13), np.arange(12, dtype=np.int32) % 4, ones(12), 4)
    candidates, held_out = np.full((12, 1), -1, np.int32), np.arange(6)
    scored = HeldOutLabels(held_out, np.zeros((6, 1), np.int32), np.zeros(6, np.int32))
    with DEVICE.start():
        pairs = find_pairs(X, Y, ones(12), candidates, DEVICE)
        found, margins = LinearClassifiers.fit_and_score(pairs, 1.0, scored, DEVICE)
    assert np.isnan(margins).all()
    assert found.bias[0] > 0


def test_all_candidates_of_held_out_rows_are_pairs_also_where_prediction_looks_at_half_of_them(monkeypatch):
    rows = make_xmc(1000, 300, 600, nnz_per_row=8, labels_per_row=2, random_state=0)
    found, fit = [], LinearClassifiers.fit_and_score

    def noted(cls, pairs, cost, held_out, device):
        linear, margins = fit(pairs, cost, held_out, device)
        found.append((held_out.labels, margins))
        return linear, margins

    monkeypatch.setattr(LinearClassifiers, "fit_and_score", classmethod(noted))
    folds = [np.arange(0, 1000, 20), np.arange(5, 1000, 20)]
    base = fit_base_models(CandidateRows(rows, ones(1000), folds, 160, cost=1.0), DEVICE)
    ((labels, margins),) = found
    assert base.held_out.labels.shape == (100, 144)
    np.testing.assert_array_equal(np.isnan(margins), labels < 0)
    np.testing.assert_array_equal(base.margins[labels < 0], MARGIN_WITHOUT_ROWS)


def test_held_out_rows_are_paired_with_the_labels_scored_for_them_and_others_with_their_candidates(
    data, rows, candidates, scored
):
    with DEVICE.start():
        pairs = find_pairs(rows, data.Y, ones(600), candidates.copy(), DEVICE, scored)
    expected = {(i, label) for i in range(600) for label in candidates[i] if i not in HELD_OUT}
    expected |= {
        (i, label) for i, of_row in zip(HELD_OUT, scored.labels, strict=True) for label in of_row if label >= 0
    }
    row, label = np.where(pairs.rows < 0, -1 - pairs.rows, pairs.rows), np.repeat(np.arange(80), np.diff(pairs.starts))
    expected |= set(zip(*data.Y.to_scipy().nonzero(), strict=True))
    assert set(zip(row, label, strict=True)) == expected
    np.testing.assert_array_equal(pairs.rows >= 0, data.Y.to_scipy().toarray()[row, label] != 0)
    assert len(row) == len(expected)


def test_each_of_several_folds_gets_the_margins_that_it_would_get_alone(data, rows, candidates, scored, to_the_end):
    fold = np.arange(len(HELD_OUT), dtype=np.int32) % 3
    _, margins = learn_all(data, rows, candidates, scored._replace(fold=fold), all_features=True)
    for number in range(3):
        of_fold = HeldOutLabels(scored.rows[fold == number], scored.labels[fold == number], 0 * fold[fold == number])
        _, expected = learn_all(data, rows, candidates, of_fold, all_features=True)
        np.testing.assert_allclose(margins[fold == number], expected, atol=2e-3)


def test_folds_get_candidates_and_votes_by_models_without_their_rows(data):
    folds = [np.arange(0, 600, 12), np.arange(6, 600, 12)]
    together = fit_base_models(CandidateRows(data, ones(600), folds, 16, cost=1.0), DEVICE)
    for number, fold in enumerate(folds):
        alone = fit_base_models(CandidateRows(data, ones(600), [fold], 16, cost=1.0), DEVICE)
        at = together.held_out.fold == number
        np.testing.assert_array_equal(together.held_out.labels[at], alone.held_out.labels)
        np.testing.assert_array_equal(together.votes[at], alone.votes)
        np.testing.assert_array_equal(together.cooccurrence[at], alone.cooccurrence)


def test_labels_that_only_rows_of_a_fold_have_are_no_candidates_of_theirs(data):
    counts = np.bincount(data.Y.indices, minlength=data.Y.n_cols)
    label = np.where(counts <= 60, counts, 0).argmax()  # a tenth of the rows has it, or less
    fold = np.flatnonzero(data.Y.has(np.full((600, 1), label, np.int32))[:, 0])
    found = fit_base_models(CandidateRows(data, ones(600), [fold], 64, cost=1.0), DEVICE)
    assert label not in found.held_out.labels
