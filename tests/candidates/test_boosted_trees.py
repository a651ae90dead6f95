"""Stacking by trees: trees and scores as those of scikit-learn, saving, and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from shared.candidates import DEVICE, fit_trees_to, one_fold, ones, with_trees
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates.boosted_trees import (
    L2_REGULARIZATION,
    LEARNING_RATE,
    N_META_FEATURES,
    N_TREES,
    BoostedTrees,
    TreePairs,
)
from xmlsgd.candidates.cooccurrence import N_COOCCURRING
from xmlsgd.candidates.fitting import CandidateRows, fit_base_models, fit_candidate_model
from xmlsgd.candidates.serialization import from_arrays, to_arrays
from xmlsgd.candidates.stacking import Inputs, log_losses
from xmlsgd.candidates.stacking_training import HeldOutPairs, _grow, _halves, fit_trees
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.files.folders import FolderArrays
from xmlsgd.data.held_out import HELD_OUT_STACKING
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cpu.kernels.tree_training import BINS, best_split
from xmlsgd.devices.cpu.kernels.trees import DEPTH
from xmlsgd.errors import ModelFileError
from xmlsgd.metrics import precision_at_k

SETTINGS = {
    "hidden_layer_sizes": (16,), "candidates": 16, "max_epochs": 2, "random_state": 0,
    "n_jobs": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def many() -> tuple[Dataset, Dataset]:
    whole = make_xmc(11_000, 600, 300, nnz_per_row=8, labels_per_row=3, random_state=0)
    train, test = (Dataset(whole.X.take(part), whole.Y.take(part)) for part in np.split(np.arange(11_000), [10_000]))
    return train, test


@pytest.fixture(scope="module")
def model(many) -> XMLClassifier:
    return XMLClassifier(**SETTINGS).fit(many[0].X, many[0].Y)


def examples(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return meta-features and labels that depend on them."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(n, N_META_FEATURES)).astype(np.float32)
    found[:, 4] = rng.integers(0, 20, n)
    return found, rng.random(n) < 1 / (1 + np.exp(1 - 2 * found[:, 0] * found[:, 1] - found[:, 2]))


def added(trees: BoostedTrees, known: np.ndarray, device: CPU) -> np.ndarray:
    """Return what trees add for meta-features (n, 5), taken as n / 6 rows with 6 labels numbered by their frequency."""
    *inputs, labels = (np.ascontiguousarray(column).reshape(-1, 6) for column in known.T)
    with device.start():
        return trees.corrected(np.zeros_like(labels), labels.astype(np.int32), inputs, device).reshape(-1)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_trees_are_those_of_scikit_learn(n_threads):
    rng = np.random.default_rng(0)
    known = rng.integers(0, [40, 30, 2, 50, 20], (6000, N_META_FEATURES)).astype(np.float32)  # a bin for each value
    truth = rng.random(6000) < expit((known[:, 0] / 16 - 2) * (known[:, 1] / 15 - 1) + known[:, 2] - known[:, 4] / 10)
    with threadpool_limits(1, "openmp"):  # whose threads spin where another process has the core
        grown = HistGradientBoostingClassifier(
            learning_rate=LEARNING_RATE, max_iter=N_TREES, max_depth=DEPTH, max_leaf_nodes=None, min_samples_leaf=1,
            l2_regularization=L2_REGULARIZATION, early_stopping=False,
        ).fit(known, truth)  # fmt: skip
    start = np.log(truth.mean() / (1 - truth.mean()))
    pairs = TreePairs(known, truth, np.full(6000, start, np.float32), np.ones(6000))
    device, spans = CPU(n_threads), np.array([[0, 3000], [0, 6000], [3000, 6000]])
    with device.start():
        _, trees, _ = BoostedTrees.fit_spans(pairs, spans, np.arange(20, dtype=np.float32), device)
    np.testing.assert_allclose(start + added(trees, known, device), grown.decision_function(known), atol=1e-5)


def test_trees_of_a_span_learn_its_pairs_alone():
    known, truth = examples(1000)
    odds, weights, frequency = np.zeros(1000, np.float32), np.ones(1000), np.arange(20, dtype=np.float32)
    spans = np.array([[0, 400], [400, 1000]])
    flipped = np.where(np.arange(1000) < 400, truth, ~truth)
    with DEVICE.start():
        found, others = (
            BoostedTrees.fit_spans(TreePairs(known, each, odds, weights), spans, frequency, DEVICE)
            for each in (truth, flipped)
        )
    np.testing.assert_array_equal(found[0].value, others[0].value)
    assert not np.array_equal(found[1].value, others[1].value)


def test_the_last_bin_alone_may_go_right():
    sums = np.zeros((1, BINS, 2))
    sums[0, :, 1] = 1
    sums[0, -1, 0] = -5
    assert best_split(sums, 1.0) == (0, BINS - 2)


def test_a_node_whose_pairs_are_in_one_bin_is_not_split():
    sums = np.zeros((1, BINS, 2))
    sums[0, 3] = 5, 1
    assert best_split(sums, 1.0) == (-1, 0)


def test_a_threshold_between_two_float32_numbers_parts_them():
    low = np.float32(1 / 3)
    high = np.nextafter(low, np.float32(1))
    known = np.zeros((400, N_META_FEATURES), np.float32)
    known[::2, 1], known[1::2, 1] = low, high
    trees = fit_trees_to(known, np.arange(400) % 2 == 0, np.zeros(400, np.float32), np.zeros(1, np.float32))
    votes, nothing = np.array([[low, high]]), np.zeros((1, 2), np.float32)
    with DEVICE.start():
        found = trees.corrected(nothing, np.zeros((1, 2), np.int32), (nothing, votes, nothing, nothing), DEVICE)
    assert found[0, 0] > 1 > -1 > found[0, 1]


def test_trees_find_what_no_weighted_sum_says():
    known, truth = examples(20_000)
    fresh, answer = examples(2400, seed=1)
    trees = fit_trees_to(known, truth, known[:, 2] - 1, np.arange(20, dtype=np.float32))
    best, linear = (np.argsort(-x)[:200] for x in (fresh[:, 2] + added(trees, fresh, DEVICE), fresh[:, 2]))
    assert answer[best].mean() > answer[linear].mean() + 0.1


def test_true_pairs_of_three_times_the_weight_have_three_times_the_odds():
    rng = np.random.default_rng(0)
    known, truth = rng.random((4200, 5)).astype(np.float32), rng.random(4200) < 0.5
    known[:, 4] = rng.integers(20, size=4200)
    nothing, frequency = np.zeros(4200, np.float32), np.arange(20, dtype=np.float32)
    trees = fit_trees_to(known, truth, nothing, frequency, np.where(truth, 3.0, 1.0))
    assert added(trees, known, DEVICE).mean() == pytest.approx(np.log(3), abs=0.1)


def pairs_of(known: np.ndarray, truth: np.ndarray) -> tuple[HeldOutPairs, np.ndarray]:
    """Return examples as held-out rows with six candidates each, and log odds by their margins."""
    logits, votes, margins, found, labels = (np.ascontiguousarray(column).reshape(-1, 6) for column in known.T)
    pairs = one_fold(
        labels.astype(np.int32),
        (logits, votes, margins, found),
        truth.reshape(-1, 6),
        np.arange(20, dtype=np.float32),
        len(truth),
    )
    return pairs, margins - 1


def test_trees_are_kept_where_they_tell_rows_better_that_they_did_not_learn_from():
    pairs, log_odds = pairs_of(*examples(6000))
    with DEVICE.start():
        trees, scores = fit_trees(pairs, log_odds, pairs.frequency[0], DEVICE)
        assert trees is not None
        seen = trees.corrected(log_odds, pairs.labels, pairs.inputs, DEVICE)
    losses = [log_loss(pairs.truth.ravel(), expit(each.ravel())) for each in (seen, scores, log_odds)]
    assert losses == sorted(losses)


@pytest.mark.parametrize("n", [600, 6000])
def test_trees_add_less_the_nearer_their_gain_is_to_its_standard_error(n):
    pairs, log_odds = pairs_of(*examples(n))
    with DEVICE.start():
        trees, scores = fit_trees(pairs, log_odds, pairs.frequency[0], DEVICE)
        grown, _, _ = _grow(pairs, log_odds, _halves(pairs), pairs.frequency[0], DEVICE)
    share = np.abs(trees.value).sum() / np.abs(grown.value).sum()
    np.testing.assert_allclose(trees.value, share * grown.value, rtol=1e-4, atol=1e-7)
    unscaled = log_odds + (scores - log_odds) / share
    gain = (pairs.weights * (log_losses(log_odds, pairs.truth) - log_losses(unscaled, pairs.truth))).sum(axis=1)
    assert share == pytest.approx(1 - gain.var() / len(gain) / gain.mean() ** 2, abs=1e-3)
    assert 0 < share < 1


@pytest.mark.parametrize("half", [0, 1])
def test_no_trees_are_learned_if_half_of_the_rows_have_no_true_candidate(half):
    known, truth = examples(6000)
    truth.reshape(-1, 6)[half::2] = False
    pairs, log_odds = pairs_of(known, truth)
    with DEVICE.start():
        assert _grow(pairs, log_odds, _halves(pairs), pairs.frequency[0], DEVICE) is None


def test_trees_of_noise_are_dropped():
    known, _ = examples(6000)
    truth = np.random.default_rng(2).random(6000) < expit(known[:, 2] - 1)
    pairs, log_odds = pairs_of(known, truth)
    with DEVICE.start():
        trees, scores = fit_trees(pairs, log_odds, pairs.frequency[0], DEVICE)
    assert trees is None
    assert scores is log_odds


@pytest.mark.slow
def test_trees_rank_as_well_as_the_regression_or_better(many, model):
    plain = XMLClassifier(**SETTINGS)
    plain.fitted_ = replace(model.fitted_, candidates=with_trees(model.candidates_, None))
    boosted, logistic = (precision_at_k(many[1].Y, m.predict_topk(many[1].X)[0], 5) for m in (model, plain))
    assert (boosted > logistic - 0.01).all()


def test_a_seed_gives_the_same_trees(many, model):
    again = XMLClassifier(**SETTINGS).fit(many[0].X, many[0].Y)
    np.testing.assert_array_equal(again.candidates_.linear.bias, model.candidates_.linear.bias)
    np.testing.assert_array_equal(again.candidates_.stacking.trees.value, model.candidates_.stacking.trees.value)


def test_the_best_labels_are_those_of_the_decision_function_of_trees(many, model):
    X = many[1].X.take(np.arange(50))
    labels, scores = model.predict_topk(X, 3)
    whole = model.decision_function(X)
    # Last digits may differ, and lead another way in a tree.
    assert np.isclose(np.take_along_axis(whole, labels, axis=1), scores, rtol=1e-4).mean() > 0.97
    assert np.isclose(np.sort(whole, axis=1)[:, :-4:-1], scores, rtol=1e-4).mean() > 0.97
    assert (np.diff(scores, axis=1) <= 0).all()


def test_probabilities_of_trees_are_calibrated(many, model):
    labels, scores = model.predict_topk(many[1].X, 5)
    truth = many[1].Y.to_scipy().toarray()[np.arange(len(labels))[:, None], labels] != 0
    assert (1 / (1 + np.exp(-scores))).mean() == pytest.approx(truth.mean(), abs=0.03)


def test_a_saved_model_keeps_its_trees_to_the_bit(many, model, tmp_path):
    model.save(tmp_path / "model")
    loaded = XMLClassifier.load(tmp_path / "model")
    for name in ("feature", "threshold", "value", "frequency"):
        kept, was = (getattr(m.candidates_.stacking.trees, name) for m in (loaded, model))
        assert kept.dtype == was.dtype
        np.testing.assert_array_equal(kept, was)
    for a, b in zip(model.predict_topk(many[1].X), loaded.predict_topk(many[1].X), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("trees_feature", lambda a: a + 4, "trees_feature must be below 5"),
        ("trees_feature", lambda a: a.astype(np.int32), "trees_feature must be uint8"),
        ("trees_threshold", lambda a: a * np.nan, "none of them NaN"),
        ("trees_threshold", lambda a: a[:-1], "with as many thresholds"),
        ("trees_value", lambda a: a + np.inf, "trees_value must be finite"),
        ("trees_value", lambda a: a[:-1], "trees_value must be float32"),
        ("frequency", lambda a: a[:-1], "frequency must be float32"),
    ],
)
def test_altered_trees_are_refused(model, name, change, complaint):
    described, arrays = to_arrays(model.candidates_)
    arrays[f"candidates_{name}"] = change(arrays[f"candidates_{name}"])
    with pytest.raises(ModelFileError, match=complaint):
        from_arrays(described, FolderArrays(arrays, Path("model")), (600, 300))
    for trees in (-1, None, 2.5):
        with pytest.raises(ModelFileError, match="candidates must have size, cost, stacking"):
            from_arrays({**described, "trees": trees}, FolderArrays(arrays, Path("model")), (600, 300))


def test_partial_fit_keeps_the_trees_and_counts_the_rows_of_labels(many, model, tmp_path):
    model.save(tmp_path / "model")
    again, fresh = XMLClassifier.load(tmp_path / "model"), many[1]
    Y = sp.hstack([fresh.Y.to_scipy(), sp.csr_array(np.ones((1000, 1), np.float32))]).tocsr()
    again.partial_fit(fresh.X, Y)
    boosted = again.candidates_.stacking.trees
    np.testing.assert_array_equal(boosted.value, model.candidates_.stacking.trees.value)
    counts = np.asarray(Y.sum(axis=0)).ravel()
    before = np.append(model.candidates_.stacking.trees.frequency, 0)
    np.testing.assert_array_equal(boosted.frequency, before + counts)
    assert again.predict_topk(fresh.X, 2)[0].shape == (1000, 2)


def test_frequencies_are_rows_of_a_weight_above_0(many):
    both = [Dataset(part.X, part.Y) for part in many]
    X, Y = (CSR.from_scipy(sp.vstack([getattr(part, name).to_scipy() for part in both])) for name in ("X", "Y"))
    weight = np.repeat([1.0, 0.0], [10_000, 1000])
    found = XMLClassifier(**{**SETTINGS, "max_epochs": 1}).fit(X, Y, sample_weight=weight).candidates_.stacking.trees
    np.testing.assert_array_equal(found.frequency, np.bincount(many[0].Y.indices, minlength=300))


def test_the_memory_estimate_counts_the_pairs_that_stacking_learns_from(monkeypatch):
    rows = make_xmc(12_000, 600, 300, nnz_per_row=8, labels_per_row=3, random_state=0)
    whole = XMLClassifier(**SETTINGS).estimate_memory(rows.X, rows.Y)["candidates"]
    monkeypatch.setattr("xmlsgd.estimators.planning.HELD_OUT_STACKING", HELD_OUT_STACKING._replace(most=200))
    few = XMLClassifier(**SETTINGS).estimate_memory(rows.X, rows.Y)["candidates"]
    assert whole - few == 130 * (1200 - 200) * (16 + N_COOCCURRING)


def test_trees_that_have_nothing_to_ask_say_how_often_labels_are_right():
    nothing, truth = np.zeros((64, N_META_FEATURES), np.float32), np.arange(64) % 4 == 0
    log_odds = np.full(64, np.log(1 / 3), np.float32)
    trees = fit_trees_to(nothing, truth, log_odds, np.zeros(6, np.float32))
    np.testing.assert_allclose(added(trees, nothing[:6], DEVICE), 0, atol=1e-6)


def test_no_trees_are_learned_if_no_held_out_row_has_a_true_candidate():
    data = make_xmc(200, 50, 20, nnz_per_row=4, labels_per_row=2, random_state=0)
    held_out = np.arange(100)
    first = data.Y.indptr[100]
    Y = CSR(np.maximum(data.Y.indptr - first, 0), data.Y.indices[first:], data.Y.data[first:], 20)

    rows = CandidateRows(Dataset(data.X, Y), ones(200), [held_out], 4)
    found = fit_base_models(rows, DEVICE)
    model, _ = fit_candidate_model(found, found.pairs({0: np.zeros(found.votes.shape, np.float32)}), DEVICE)
    assert model.stacking.trees is None


@pytest.mark.filterwarnings("ignore:X. 100% of the rows")
def test_stacking_without_a_false_candidate_has_no_trees_and_passes_all():
    X, Y = np.ones((10_000, 2), np.float32), np.ones((10_000, 3), np.int64)
    X[::2, 1] = 0
    settings = {"candidates": 3, "max_epochs": 1, "n_jobs": 1, "random_state": 0}
    model = XMLClassifier((4,), **settings).fit(X, Y)
    assert model.candidates_.stacking.trees is None
    assert model.predict(X, threshold="micro").all()


@pytest.mark.parametrize("n_folds", [1, 3])
def test_trees_are_judged_by_rows_of_other_groups(monkeypatch, n_folds):
    """Rows of a group are alike: trees that have learned one know the others."""
    rng = np.random.default_rng(0)
    groups = np.sort(rng.integers(7, size=60 * n_folds)).reshape(n_folds, 60) + 7 * np.arange(n_folds)[:, None]
    for fold in groups:
        rng.shuffle(fold)
    shape = (groups.size, 4)
    pairs = HeldOutPairs(
        np.tile(np.arange(4, dtype=np.int32), (groups.size, 1)),
        Inputs(*(rng.random(shape, np.float32) for _ in range(4))),
        rng.random(shape) < 0.3, np.repeat(np.arange(n_folds, dtype=np.int32), 60), np.ones((n_folds, 4), np.float32),
        60, groups.ravel(),
    )  # fmt: skip
    learned: list[set[float]] = []

    def noted(given, spans, *rest):
        learned.extend({*given.inputs[first:last, 0].tolist()} for first, last in spans)
        return fit(given, spans, *rest)

    fit = BoostedTrees.fit_spans
    monkeypatch.setattr(BoostedTrees, "fit_spans", noted)
    with DEVICE.start():
        fit_trees(pairs, np.zeros(shape, np.float32), np.ones(4, np.float32), DEVICE)
    logits = pairs.inputs.logits
    first, both, second = (set(groups.ravel()[np.isin(logits, list(each)).any(axis=1)]) for each in learned)
    assert not first & second
    assert first | second == both == set(groups.ravel())


def test_one_group_alone_learns_no_trees():
    rng = np.random.default_rng(0)
    labels, scores = np.tile(np.arange(4, dtype=np.int32), (60, 1)), np.zeros((60, 4), np.float32)
    pairs = one_fold(labels, (scores,) * 4, rng.random((60, 4)) < 0.3, np.ones(4, np.float32), 60)
    pairs = replace(pairs, groups=np.zeros(60, np.int64))
    with DEVICE.start():
        assert fit_trees(pairs, scores, np.ones(4, np.float32), DEVICE)[0] is None
