"""Thresholds that are learned on held-out rows, and the labels that are predicted by them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import f1_score

from shared.planted import N_LABELS, planted, small
from xmlsgd import DataError, XMLClassifier
from xmlsgd.estimators.thresholds import CHOICES, Thresholds


def drawn(n_rows, rates, seed=0):
    """Return labels, probabilities and truth of all pairs of rows and labels; label l is true with its `rates`."""
    rng = np.random.default_rng(seed)
    labels = np.tile(np.arange(len(rates)), n_rows).astype(np.int32)
    chances = rng.beta(2 * np.asarray(rates), 2 - 2 * np.asarray(rates), (n_rows, len(rates))).ravel()
    return labels, chances, rng.random(len(chances)) < chances


def fitted_to(labels, chances, truth, frequency):
    return Thresholds.fit(labels, chances, truth, np.bincount(labels[truth], minlength=len(frequency)), frequency)


def best_by_hand(chances, truth):
    def f1(choice):  # scikit-learn takes a millisecond to check its arguments
        picked = chances >= choice
        return 2 * (truth & picked).sum() / (truth.sum() + picked.sum())

    return max(CHOICES, key=f1)


def test_the_threshold_of_micro_f1_is_half_of_the_largest_and_close_to_the_best_choice():
    labels, chances, truth = drawn(300, [0.05, 0.2, 0.5])
    found = fitted_to(labels, chances, truth, np.array([10, 40, 100]))
    best = best_by_hand(chances, truth)
    assert found.micro == round(f1_score(truth, chances >= best) / 2, 2)
    assert found.micro == pytest.approx(best, abs=0.05)


def test_few_held_out_rows_cost_less_f1_than_the_best_choice_on_them():
    """With 40 rows of 1 true label in 10 that choice varies by a factor of two, and so does that of each label."""
    _, many, is_true = drawn(4000, [0.02, 0.05, 0.2])

    def missed(threshold):
        return best - f1_score(is_true, many >= threshold)

    best, frequency = f1_score(is_true, many >= best_by_hand(many, is_true)), np.array([10, 25, 100])
    lost = [
        (missed(fitted_to(labels, chances, truth, frequency).micro), missed(best_by_hand(chances, truth)))
        for labels, chances, truth in (drawn(40, [0.02, 0.05, 0.2], seed) for seed in range(20))
    ]
    learned, naive = np.mean(lost, axis=0)
    assert learned < 0.7 * naive


def test_true_labels_without_a_pair_lower_the_threshold():
    """What was never a candidate is missed at any threshold: F1 is lower, and its threshold with it."""
    labels, chances, truth = drawn(300, [0.1, 0.3])
    n_true, frequency = np.bincount(labels[truth], minlength=2), np.array([10, 10])
    without = Thresholds.fit(labels, chances, truth, n_true, frequency)
    missed = Thresholds.fit(labels, chances, truth, 5 * n_true, frequency)
    assert missed.micro < without.micro


def test_a_label_with_much_evidence_has_its_own_best_threshold_for_macro_f1():
    labels, chances, truth = drawn(20_000, [0.02, 0.5])
    found = fitted_to(labels, chances, truth, np.array([20, 500]))
    for label in (0, 1):
        assert found.macro[label] == pytest.approx(
            best_by_hand(chances[labels == label], truth[labels == label]), abs=0.03
        )
    assert found.macro[0] < found.macro[1] - 0.05


def test_own_hits_are_those_expected_by_the_probabilities():
    """One label of 30 held-out rows happens to be true where it is improbable; its threshold hardly follows."""
    labels, chances, truth = drawn(3000, [0.1, 0.1])
    pairs = np.tile([0.1, 0.6], 15)
    labels, chances = np.append(labels, np.full(30, 2, np.int32)), np.append(chances, pairs)
    thresholds = [
        fitted_to(labels, chances, np.append(truth, drawn_truth), np.array([300, 300, 300])).macro[2]
        for drawn_truth in (pairs < 0.3, pairs > 0.3)
    ]
    assert thresholds[0] == pytest.approx(thresholds[1], abs=0.05)


def test_labels_without_evidence_have_the_threshold_of_labels_as_frequent():
    labels, chances, truth = drawn(3000, [0.02, 0.02, 0.5, 0.5])
    n_true = np.zeros(6, np.int64)
    n_true[:4] = np.bincount(labels[truth], minlength=4)
    found = Thresholds.fit(labels, chances, truth, n_true, np.array([20, 20, 500, 500, 20, 500]))
    assert found.macro[4] == pytest.approx(found.macro[0], abs=0.05)
    assert found.macro[5] == pytest.approx(found.macro[2], abs=0.05)
    assert found.macro[4] < found.macro[5] - 0.05


def test_a_label_without_held_out_rows_takes_the_threshold_of_its_group():
    labels, truth = np.zeros(20, np.int32), np.arange(20) < 10
    found = fitted_to(labels, np.where(truth, 0.9, 0.8), truth, np.array([20, 20, 500]))
    assert found.macro[1:].tolist() == [0.81, 0.81]


def test_the_f1_of_a_label_also_counts_three_true_pairs_of_labels_as_frequent():
    labels, truth = np.zeros(97, np.int32), np.ones(97, np.bool_)
    found = Thresholds.fit(labels, np.full(97, 0.95), truth, np.array([97, 3]), np.array([100, 100]))
    f1_of_both, pairs = 2 * 0.97 / 1.97, 3 * 0.97  # of three true pairs, 3 % are never candidates
    assert found.micro == round(f1_of_both / 2, 2)
    assert found.macro[1] == round(2 * pairs / (pairs + 3 + 3) / 2, 2)  # its own three are never candidates


def test_a_label_seen_once_hardly_leaves_the_others():
    labels, chances, truth = drawn(3000, [0.02, 0.02])
    labels, chances, truth = np.append(labels, 2), np.append(chances, 0.01), np.append(truth, True)
    found = fitted_to(labels, chances, truth, np.array([20, 20, 20]))
    assert found.macro[2] > 0.5 * found.macro[0]


def test_labels_that_come_later_have_the_threshold_of_micro_f1():
    found = Thresholds(0.25, np.array([0.5])).extended(3)
    assert found.macro.tolist() == [0.5, 0.25, 0.25]


@pytest.fixture(scope="module")
def calibrated():
    return small(max_epochs=8).fit(*planted(1500))


@pytest.mark.parametrize("threshold", ["micro", "macro", 0.001, 0.9])
def test_predicted_labels_are_those_with_the_probability_of_the_threshold(calibrated, held_out, threshold):
    X, _ = held_out
    least = calibrated.thresholds_.get(threshold, threshold)
    expected = calibrated.predict_proba(X) >= least
    np.testing.assert_array_equal(calibrated.predict(X, threshold).toarray(), expected)
    labels, chances = calibrated.predict_topk(X, N_LABELS, threshold=threshold, proba=True)
    np.testing.assert_array_equal((labels >= 0).sum(axis=1), expected.sum(axis=1))
    assert (chances[labels < 0] == 0).all()


@pytest.mark.parametrize("threshold", ["micro", "macro", 0.1])
def test_a_label_below_its_threshold_leaves_no_gap_before_the_next_one(held_out, threshold):
    X, _ = held_out
    model, weight = small(max_epochs=2, candidates=0).fit(*planted(1500)), np.geomspace(1, 100, N_LABELS)
    every, _ = model.predict_topk(X, N_LABELS, label_weight=weight)
    labels, scores = model.predict_topk(X, N_LABELS, threshold=threshold, label_weight=weight)
    assert any(set(row[: (kept >= 0).sum()]) != set(kept[kept >= 0]) for row, kept in zip(every, labels, strict=True))
    for row, kept, its in zip(every, labels, scores, strict=True):
        assert [label for label in row if label in kept] == kept[kept >= 0].tolist()  # in the same order
        assert (kept[(kept >= 0).sum() :] == -1).all()
        np.testing.assert_array_equal(kept >= 0, np.isfinite(its))


def test_thresholds_are_hundredths_also_after_saving(calibrated, tmp_path):
    calibrated.save(tmp_path / "m")
    for model in (calibrated, XMLClassifier.load(tmp_path / "m")):
        learned = model.thresholds_
        assert learned["micro"] == round(learned["micro"], 2)
        assert [t for t in learned["macro"].tolist() if t != round(t, 2)] == []


def test_the_default_threshold_is_that_of_micro_f1(calibrated, held_out):
    X, _ = held_out
    np.testing.assert_array_equal(calibrated.predict(X).toarray(), calibrated.predict(X, "micro").toarray())


def test_learned_thresholds_find_more_than_a_half(held_out):
    X, Y = held_out
    # Little trained: few true labels have more than a half.
    model = small(max_epochs=2, candidates=0).fit(*planted(1500))
    for average in ("micro", "macro"):
        learned, half = (
            f1_score(Y.toarray(), model.predict(X, t).toarray(), average=average, zero_division=0)
            for t in (average, 0.5)
        )
        assert learned > half


@pytest.mark.parametrize("threshold", ["f1", -0.1, 1.5, np.nan, np.array([0.1, 0.9])])
def test_what_is_no_probability_is_refused(calibrated, held_out, threshold):
    with pytest.raises(DataError, match=r"threshold: must be a probability in \[0, 1\], 'micro' or 'macro', got"):
        calibrated.predict(held_out[0], threshold)


def test_softmax_without_probabilities_of_labels_refuses_thresholds(rows, held_out):
    model = small(max_epochs=1, loss="softmax").fit(*rows)
    assert model.predict(held_out[0]).shape == (200, N_LABELS)
    for arguments in ({"threshold": 0.5}, {"threshold": "macro"}, {"proba": True}):
        with pytest.raises(
            DataError, match="needs a probability of each label by itself, as with loss='bce', got loss"
        ):
            model.predict_topk(held_out[0], **arguments)
    for threshold in ("micro", "macro", 0.5):
        with pytest.raises(DataError, match="threshold: needs a probability of each label by itself"):
            model.predict(held_out[0], threshold)


def test_a_held_out_row_with_very_many_labels_takes_little_memory():
    """Counts at all choices are held for some labels at a time: for all of them they would take 0.2 GB each."""
    n_labels = 300_000
    ones, few = np.ones(n_labels, np.int64), np.arange(50, dtype=np.int32)
    tracemalloc.start()
    found = Thresholds.fit(few, np.full(50, 0.3), few < 10, ones, ones)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
    assert len(found.macro) == n_labels
