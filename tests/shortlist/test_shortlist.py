"""The shortlist: neighbors, the linear path, the blend, and an estimator that has them."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.csr import CSR, Dataset
from xmlsgd.datasets.store import open_store, write_store
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cpu_neighbors import BINS, keep_best
from xmlsgd.devices.cpu_pairs import best_of_list
from xmlsgd.engine import Interrupted
from xmlsgd.errors import DataError, DivergenceError, ModelFileError
from xmlsgd.estimators.defaults import auto_shortlist
from xmlsgd.estimators.scoring import Scorer
from xmlsgd.learner import Learner
from xmlsgd.metrics import precision_at_k
from xmlsgd.shortlist.arrays import from_arrays, to_arrays
from xmlsgd.shortlist.blend import LEAST_VOTE, Blend, Calibration, log_probability
from xmlsgd.shortlist.linear import Linear
from xmlsgd.shortlist.model import held_out_rows
from xmlsgd.shortlist.neighbors import NEIGHBORS, Neighbors
from xmlsgd.shortlist.rows import rarity, unit_rows

DEVICE = CPU(1, precision="float32")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return make_xmc(600, 300, 80, nnz_per_row=8, labels_per_row=3, random_state=0)


@pytest.fixture(scope="module")
def rows(data) -> CSR:
    return unit_rows(data.X, rarity(data.X), DEVICE)


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32)


def votes_by_hand(similarity: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the shares (n, L) of the votes of the nearest rows, by cosines (n, n_train)."""
    shares = np.zeros((len(similarity), Y.shape[1]))
    for i, cosines in enumerate(similarity):
        near = [j for j in np.argsort(-cosines, kind="stable")[:NEIGHBORS] if cosines[j] > 1e-20]
        power = weight[near] * cosines[near] ** 2
        shares[i] = power @ Y[near] / max(power.sum(), 1e-20)
    return shares


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("own", [True, False])
def test_neighbors_vote_with_the_square_of_their_cosine_and_no_row_for_itself(data, rows, own, n_threads):
    weight = np.random.default_rng(0).random(data.n_rows).astype(np.float32)
    device = CPU(n_threads, precision="float32")
    with device.start():
        labels, shares = Neighbors.build(rows, data.Y, weight).votes(rows, 80, device, own=0 if own else -1)
    dense = rows.to_scipy().toarray().astype(np.float64)
    similarity = dense @ dense.T
    if own:
        np.fill_diagonal(similarity, 0)
    expected = votes_by_hand(similarity, data.Y.to_scipy().toarray(), weight)
    found = np.zeros_like(expected)
    row, j = np.nonzero(labels >= 0)
    found[row, labels[row, j]] = shares[row, j]
    # Of neighbors equally near, which one is the last to count is anybody's choice.
    assert np.mean(np.abs(found - expected).max(axis=1) < 1e-4) > 0.97
    assert ((labels >= 0) == (shares > 0)).all()


@pytest.mark.parametrize("n", [0, 1, 64, 65, 500])
@pytest.mark.parametrize("steps", [1, 7, 10**6])
def test_the_largest_values_are_kept_however_many_are_equal(n, steps):
    values = (1 + np.random.default_rng(n).integers(steps, size=n + 1)).astype(np.float32) / np.float32(steps)
    items, best, found = np.arange(n + 1, dtype=np.int32), np.empty(64, np.float32), np.empty(64, np.int32)
    keep_best(values, items, n, best, found, np.empty(BINS, np.int32))
    expected = np.sort(values[:n])[::-1][:64]
    np.testing.assert_array_equal(np.sort(best)[::-1], np.pad(expected, (0, 64 - len(expected))))
    np.testing.assert_array_equal(values[found[found >= 0]], best[found >= 0])
    assert len(set(found[found >= 0])) == len(expected) == (found >= 0).sum()


def test_neighbors_of_weight_zero_name_no_labels():
    Y = CSR(np.arange(0, 701, 7), np.tile(np.arange(7, dtype=np.int32), 100), np.ones(700, np.float32), 7)
    X = CSR(np.arange(101), np.zeros(100, np.int32), np.ones(100, np.float32), 1)
    with DEVICE.start():
        labels, shares = Neighbors.build(X, Y, np.zeros(100, np.float32)).votes(X, 4, DEVICE)
    assert (labels == -1).all()
    assert not shares.any()


def test_a_row_of_enormous_values_changes_no_other_row(data):
    X = data.X.to_scipy()[:50].tocsr()
    with_outlier = sp.vstack([X[:1] * np.float32(3e37), X[1:]]).tocsr()
    scale = rarity(data.X)
    plain, other = (unit_rows(CSR.from_scipy(each), scale, DEVICE) for each in (X, with_outlier))
    np.testing.assert_array_equal(plain.data[X.indptr[1] :], other.data[X.indptr[1] :])
    np.testing.assert_allclose(plain.data, other.data, rtol=1e-6)
    assert np.abs(unit_rows(CSR.from_scipy(X * np.float32(1e-30)), scale, DEVICE).data - plain.data).max() < 1e-6


def test_values_out_of_range_stay_within_the_bins():
    values = np.array([np.nan, np.inf, 3e38, 1.5, 1, 0.5, -2, -np.inf] * 20, np.float32)
    best, found = np.empty(64, np.float32), np.empty(64, np.int32)
    keep_best(values, np.arange(160, dtype=np.int32), 160, best, found, np.empty(BINS, np.int32))
    assert (found >= 0).sum() == 64


def test_stored_zeros_are_no_features(data, rows):
    X = data.X.to_scipy().tocoo()
    full = sp.coo_array(
        (np.append(X.data, np.zeros(200, np.float32)), (np.append(X.row, np.arange(200)), np.append(X.col, [0] * 200))),
        shape=X.shape,
    )
    stored = CSR.from_scipy(full.tocsr())
    assert stored.nnz > data.X.nnz
    np.testing.assert_array_equal(rarity(stored), rarity(data.X))
    zeros, none = (
        Neighbors.build(each, data.Y, ones(each.n_rows)) for each in (unit_rows(stored, rarity(stored), DEVICE), rows)
    )
    assert zeros.postings.nnz == none.postings.nnz
    np.testing.assert_array_equal(zeros.postings.indices, none.postings.indices)


def test_votes_are_shares_however_small_the_weights_of_rows(data, rows):
    with DEVICE.start():
        found = [Neighbors.build(rows, data.Y, w * ones(data.n_rows)).votes(rows, 8, DEVICE)[1] for w in (1, 1e-30)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-6)


def test_a_row_without_features_has_no_neighbors(data, rows):
    with DEVICE.start():
        memory = Neighbors.build(rows, data.Y, ones(data.n_rows))
        labels, shares = memory.votes(CSR(np.zeros(3, np.int64), rows.indices[:0], rows.data[:0], 300), 4, DEVICE)
    assert (labels == -1).all()
    assert not shares.any()


def test_entries_that_cancel_and_neighbors_of_no_weight_do_no_harm():
    """Signed entries bring a cosine back to zero again and again; a vote of nothing names no label."""
    rng = np.random.default_rng(0)
    dense = rng.choice(np.float32([-0.5, 0.5]), (40, 4))  # of norm 1
    X = CSR.from_scipy(sp.csr_array(np.repeat(dense, 25, axis=1) / np.float32(5)))
    Y = CSR.from_scipy(sp.csr_array(rng.random((40, 3)) < 0.5))
    with DEVICE.start():
        labels, shares = Neighbors.build(X, Y, np.zeros(40, np.float32)).votes(X, 3, DEVICE)
        assert (labels == -1).all()
        assert not shares.any()
        labels, shares = Neighbors.build(X, Y, ones(40)).votes(X, 3, DEVICE)
    assert labels.max() < 3
    assert ((shares >= 0) & (shares <= 1)).all()


def test_rows_of_a_memory_may_be_added_with_new_features_and_labels(data, rows):
    rest = np.arange(400, 600)
    X, Y = (CSR.from_scipy(part.to_scipy()[:400, :width]) for part, width in ((rows, 200), (data.Y, 50)))
    grown = Neighbors.build(X, Y, ones(400)).with_rows(rows.take(rest), data.Y.take(rest), ones(200))
    known = [sp.csr_array((part.data, part.indices, part.indptr), shape=(400, n)) for part, n in ((X, 300), (Y, 80))]
    wide_X, wide_Y = (
        CSR.from_scipy(sp.vstack([old, part.to_scipy()[400:]]).tocsr())
        for old, part in zip(known, (rows, data.Y), strict=True)
    )
    whole = Neighbors.build(wide_X, wide_Y, ones(600))
    np.testing.assert_array_equal(grown.postings.to_scipy().toarray(), whole.postings.to_scipy().toarray())
    np.testing.assert_array_equal(grown.Y.to_scipy().toarray() != 0, whole.Y.to_scipy().toarray() != 0)


def test_rare_features_weigh_more_and_rows_have_norm_one(data, rows):
    scale, counts = rarity(data.X), np.bincount(data.X.indices, minlength=300)
    assert scale[counts.argmax()] < scale[counts.argmin()]
    assert (scale > 0).all()
    np.testing.assert_allclose(np.sqrt(rows.to_scipy().power(2).sum(axis=1)), 1, rtol=1e-5)


def test_rows_are_scaled_by_feature_and_counted_in_parts_as_at_once(data, rows, monkeypatch):
    scale = rarity(data.X)
    scaled = data.X.to_scipy().toarray().astype(np.float64) * scale
    np.testing.assert_allclose(rows.to_scipy().toarray(), scaled / np.linalg.norm(scaled, axis=1)[:, None], rtol=1e-6)
    monkeypatch.setattr("xmlsgd.shortlist.rows.ENTRIES", 50)
    np.testing.assert_array_equal(rarity(data.X), scale)


def test_features_of_too_many_rows_have_no_postings(data, rows, monkeypatch):
    counts = np.bincount(rows.indices, minlength=300)
    monkeypatch.setattr("xmlsgd.shortlist.neighbors.BUDGET", int(np.median(counts)))
    dense = rows.to_scipy().toarray().T
    dense[counts > np.median(counts)] = 0
    found = Neighbors.build(rows, data.Y, ones(600)).postings
    np.testing.assert_array_equal(found.to_scipy().toarray(), dense)
    assert found.nnz == np.count_nonzero(dense)


def objective(X: np.ndarray, sign: np.ndarray, cost: np.ndarray, w: np.ndarray, bias: float) -> float:
    """Return 1/2 (|w|^2 + bias^2) + sum of cost times the squared hinge."""
    slack = np.maximum(1 - sign * (X @ w + bias), 0)
    return float((w @ w + bias**2) / 2 + cost @ slack**2)


def test_the_linear_path_minimizes_the_squared_hinge_of_each_label_on_its_pairs_and_features(data, rows, monkeypatch):
    """Against LIBLINEAR's dual solver on the same rows, with the features of those that have the label."""
    from sklearn.svm import LinearSVC

    from xmlsgd.shortlist import linear

    for name, value in (("SMALLEST", 0.0), ("TOLERANCE", 1e-4), ("PASSES", 2000)):
        monkeypatch.setattr(linear, name, value)
    shortlist = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)
    weight = np.where(np.arange(600) % 7, 1.0, 0.0).astype(np.float32)
    weight[::5] *= 3
    with DEVICE.start():
        found = Linear.fit(rows, data.Y, weight, shortlist.copy(), DEVICE)
    dense, truth = rows.to_scipy().toarray().astype(np.float64), data.Y.to_scipy().toarray() != 0
    for label in range(0, 80, 9):
        paired = (truth[:, label] | (shortlist == label).any(axis=1)) & (weight > 0)
        own = (dense[paired & truth[:, label]] != 0).any(axis=0)
        X, cost = dense[paired] * own, weight[paired].astype(np.float64)
        sign = np.where(truth[paired, label], 1.0, -1.0)
        machine = LinearSVC(C=1.0, tol=1e-6, max_iter=20000, random_state=0).fit(X, sign, sample_weight=cost)
        best = objective(X, sign, cost, machine.coef_[0], machine.intercept_[0])
        w = found.weights.to_scipy()[[label]].toarray()[0]
        assert not w[~own].any()
        assert objective(X, sign, cost, w, found.bias[label]) == pytest.approx(best, rel=1e-3)


def test_labels_solved_in_many_chunks_are_those_solved_in_one(data, rows, monkeypatch):
    from xmlsgd.shortlist import linear

    shortlist = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)

    def fitted(device):
        with device.start():
            return Linear.fit(rows, data.Y, ones(600), shortlist.copy(), device)

    one = fitted(DEVICE)
    monkeypatch.setattr(linear, "CHUNK", 500)
    many = fitted(CPU(2, precision="float32"))
    for a, b in ((one.weights.indptr, many.weights.indptr), (one.weights.indices, many.weights.indices)):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.weights.data, many.weights.data)
    np.testing.assert_array_equal(one.bias, many.bias)


@pytest.mark.parametrize("chunk", [1 << 23, 500])
def test_of_more_weights_than_there_is_room_for_the_largest_are_kept(data, rows, monkeypatch, chunk):
    from xmlsgd.shortlist import linear

    shortlist = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)

    def fitted(most):
        monkeypatch.setattr(linear, "LEAST_KEPT", most)
        with DEVICE.start():
            return Linear.fit(rows, data.Y, ones(600), shortlist.copy(), DEVICE)

    monkeypatch.setattr(linear, "PER_ENTRY", 0)
    whole = fitted(1 << 20)
    monkeypatch.setattr(linear, "CHUNK", chunk)
    few = fitted(2000)
    all_of, some_of = (path.weights.to_scipy().toarray() for path in (whole, few))
    np.testing.assert_array_equal(some_of[some_of != 0], all_of[some_of != 0])
    np.testing.assert_array_equal(few.bias, whole.bias)
    assert 1500 < few.weights.nnz <= 2000
    if chunk > 500:
        assert np.abs(some_of[some_of != 0]).min() >= np.sort(np.abs(all_of).ravel())[-2001]


def test_the_estimate_of_memory_knows_how_many_weights_are_kept(many, monkeypatch):
    X, Y = many[0].X, many[0].Y

    def estimated():
        return XMLClassifier((16,)).estimate_memory(X, Y)["shortlist"]

    usual = estimated()
    monkeypatch.setattr("xmlsgd.shortlist.linear.PER_ENTRY", 0)
    monkeypatch.setattr("xmlsgd.shortlist.linear.LEAST_KEPT", 100)
    assert usual - estimated() == 24 * (6 * X.nnz - 100)


def test_margins_are_those_of_the_weights(data, rows):
    shortlist = np.random.default_rng(0).integers(-1, 80, (600, 9)).astype(np.int32)
    with DEVICE.start():
        path = Linear.fit(rows, data.Y, ones(600), np.tile(np.arange(80, dtype=np.int32), (600, 1)), DEVICE)
        found = path.margins(rows, shortlist, DEVICE)
    whole = (rows.to_scipy() @ path.weights.to_scipy().T).toarray() + path.bias
    expected = np.where(shortlist >= 0, np.take_along_axis(whole, np.maximum(shortlist, 0), axis=1), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_label_without_rows_has_the_margin_of_none(data, rows):
    no_last = CSR(data.Y.indptr, data.Y.indices, data.Y.data, 81)
    with DEVICE.start():
        path = Linear.fit(rows, no_last, ones(600), np.full((600, 1), -1, np.int32), DEVICE)
    assert path.bias[80] == -1
    assert path.weights.indptr[80] == path.weights.indptr[81]


def test_the_blend_finds_the_weights_of_a_logistic_model():
    rng = np.random.default_rng(0)
    evidence = rng.normal(size=(60_000, 3))
    odds = evidence @ [0.3, 0.9, 2.0] - 1.0
    blend = Blend.fit(evidence, rng.random(60_000) < 1 / (1 + np.exp(-odds)))
    np.testing.assert_allclose(blend, [0.3, 0.9, 2.0, -1.0], atol=0.06)


def test_the_blend_keeps_its_defaults_where_all_pairs_are_alike():
    assert Blend.fit(np.zeros((5, 3)), np.zeros(5, bool)) == Blend()


def test_margins_are_calibrated_by_how_frequent_a_label_is():
    rng = np.random.default_rng(0)
    evidence, frequency = rng.normal(size=(60_000, 3)), rng.integers(0, 500, size=60_000).astype(np.float32)
    x = np.log1p(frequency) - np.log1p(frequency).mean()
    odds = evidence @ [0.3, 0.9, 2.0] - 1.0 + x * (0.5 * evidence[:, 2] - 0.8)
    blend, calibration = Blend.fit_by_frequency(evidence, rng.random(60_000) < 1 / (1 + np.exp(-odds)), frequency)
    np.testing.assert_allclose(blend, [0.3, 0.9, 2.0, -1.0], atol=0.07)
    np.testing.assert_allclose(calibration[:2], [0.25, -0.4], atol=0.03)
    factor, shift = calibration.factors(np.array([0, 10, 400], np.float32))
    of_pair = blend.linear * (factor * 1.5 + shift)
    there = np.log1p([0, 10, 400]) - np.log1p(frequency).mean()
    assert factor[0] == 0  # 1 + 0.25 * -5.2 would turn the margin round
    np.testing.assert_allclose(of_pair[1:], (2.0 * 1.5 + there * (0.5 * 1.5 - 0.8))[1:], atol=0.15)


@pytest.mark.parametrize("sign", [1, -1])
def test_margins_stay_as_they_are_where_nothing_is_learned_of_them(sign):
    rng = np.random.default_rng(0)
    evidence, frequency = rng.normal(size=(1000, 3)), np.ones(1000, np.float32)
    assert Blend.fit_by_frequency(evidence, np.ones(1000, bool), frequency) == (Blend(), Calibration())
    truth = evidence @ [1, 1, sign] > 0
    blend, calibration = Blend.fit_by_frequency(evidence, truth, frequency)
    np.testing.assert_allclose(blend, Blend.fit(evidence, truth), rtol=1e-3)
    assert (blend.linear == 0) == (sign < 0)
    factor, shift = calibration.factors(np.ones(4, np.float32))
    np.testing.assert_allclose([factor, shift], [np.ones(4), np.zeros(4)], atol=1e-5)


def test_a_calibrated_path_has_the_margins_that_its_factors_say(data, rows, monkeypatch):
    monkeypatch.setattr("xmlsgd.shortlist.linear.LABELS", 7)
    lists = np.tile(np.arange(80, dtype=np.int32), (600, 1))
    factor, shift = np.random.default_rng(0).random((2, 80)).astype(np.float32)
    with DEVICE.start():
        path = Linear.fit(rows, data.Y, ones(600), lists.copy(), DEVICE)
        before = path.margins(rows, lists, DEVICE)
        after = path.calibrate(factor, shift).margins(rows, lists, DEVICE)
    np.testing.assert_allclose(after, factor * before + shift, rtol=1e-4, atol=1e-5)


def test_scores_of_the_blend_are_log_odds():
    blend = Blend(0.5, 1.0, 2.0, -1.0)
    z, votes, margins = (np.array([x], np.float32) for x in (0.7, 0.25, 0.5))
    expected = -0.5 * np.log1p(np.exp(-0.7)) + np.log(0.25) + 2.0 * 0.5 - 1.0
    np.testing.assert_allclose(blend.scores(z, votes, margins), [expected], rtol=1e-5)
    no_vote = blend.scores(z, np.zeros(1, np.float32), margins)
    np.testing.assert_allclose(no_vote - blend.scores(z, votes, margins), np.log(LEAST_VOTE / 0.25), rtol=1e-4)
    assert log_probability(np.float32([-200.0]))[0] == pytest.approx(-200)


def test_rows_are_held_out_for_the_blend_where_there_are_enough():
    held = held_out_rows(25_000, 0)
    assert len(held) == 500 == len(np.unique(held))
    assert [len(held_out_rows(n, 0)) for n in (999, 1000, 3000, 4000, 20_000)] == [0, 100, 300, 400, 400]
    assert len(held_out_rows(10**7, 0)) == 2048
    assert not np.array_equal(held, held_out_rows(25_000, 1))


@pytest.fixture(scope="module")
def many() -> tuple[Dataset, Dataset]:
    whole = make_xmc(9000, 1500, 1100, nnz_per_row=10, labels_per_row=3, random_state=0)
    train, test = (Dataset(whole.X.take(part), whole.Y.take(part)) for part in (np.arange(8000), np.arange(8000, 9000)))
    return train, test


SETTINGS = {"hidden_layer_sizes": (16,), "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def model(many) -> XMLClassifier:
    return XMLClassifier(**SETTINGS).fit(many[0].X, many[0].Y)


def test_many_labels_get_a_shortlist_and_rank_better_with_it(many, model):
    alone = XMLClassifier(**SETTINGS, shortlist=0, max_epochs=model.n_epochs_).fit(many[0].X, many[0].Y)
    assert alone.shortlist_ is None
    assert model.shortlist_.size == 64
    with_it, without = (precision_at_k(many[1].Y, m.predict_topk(many[1].X)[0], 5) for m in (model, alone))
    assert with_it[0] > without[0] + 0.05
    assert with_it[4] > without[4]


def test_the_best_labels_are_those_of_the_decision_function(many, model):
    X = many[1].X.take(np.arange(50))
    labels, scores = model.predict_topk(X, 3)
    whole = model.decision_function(X)
    np.testing.assert_allclose(np.take_along_axis(whole, labels, axis=1), scores, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.sort(whole, axis=1)[:, :-4:-1], scores, rtol=1e-3, atol=0.1)
    some = np.array([5, 700, 3, 1000])
    np.testing.assert_allclose(model.decision_function(X, labels=some), whole[:, some], rtol=1e-3, atol=1e-3)
    best, _ = model.predict_topk(X, 2, labels=some)
    np.testing.assert_array_equal(best[:, 0], some[whole[:, some].argmax(axis=1)])


@pytest.mark.parametrize("n_jobs", [1, 2, None])
def test_a_row_by_itself_gets_the_answer_that_it_gets_among_others(many, model, n_jobs):
    X = many[1].X.span(0, 40)
    answering = copy.copy(model).set_params(n_jobs=n_jobs)
    labels, scores = answering.predict_topk(X)
    for i in range(X.n_rows):
        one = X.to_scipy()[[i]]
        for row in (X.span(i, i + 1), one, one.astype(np.float64), one.toarray()):
            found, found_scores = answering.predict_topk(row)
            np.testing.assert_array_equal(found[0], labels[i])
            np.testing.assert_array_equal(found_scores[0], scores[i])


def test_a_model_that_learns_on_answers_by_what_it_has_learned(many, tmp_path):
    X, Y = many[0].X.span(0, 5000), many[0].Y.span(0, 5000)
    model = XMLClassifier(**SETTINGS, shortlist=16, max_epochs=1).fit(X, Y)
    before = [model.predict_topk(rows)[1] for rows in (many[1].X, many[1].X.span(0, 1))]
    model.partial_fit(many[1].X, many[1].Y).save(tmp_path / "model")
    after = [model.predict_topk(rows)[1] for rows in (many[1].X, many[1].X.span(0, 1))]
    loaded = XMLClassifier.load(tmp_path / "model")
    for old, new, rows in zip(before, after, (many[1].X, many[1].X.span(0, 1)), strict=True):
        assert (old != new).any()
        np.testing.assert_array_equal(loaded.predict_topk(rows)[1], new)


def test_probabilities_of_listed_labels_are_calibrated(many, model):
    labels, scores = model.predict_topk(many[1].X, 5)
    chances = 1 / (1 + np.exp(-scores))
    truth = many[1].Y.to_scipy().toarray()[np.arange(len(labels))[:, None], labels] != 0
    assert chances.mean() == pytest.approx(truth.mean(), abs=0.1)


def test_more_labels_than_are_listed_are_ranked_all_the_same(many, model):
    X = many[1].X.take(np.arange(20))
    labels, scores = model.predict_topk(X, 1100)
    assert (np.sort(labels, axis=1) == np.arange(1100)).all()
    assert (np.diff(scores, axis=1) <= 0).all()


def test_a_row_that_no_training_row_is_like_gets_the_labels_of_the_network(model):
    X = sp.csr_array((2, 1500), dtype=np.float32)
    labels, scores = model.predict_topk(X, 5)
    expected, logits = Scorer(model.network_, model.params_, DEVICE).top_k(CSR.from_scipy(X), 5)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose(scores, model.shortlist_.unlisted(logits), rtol=1e-5)


def test_a_saved_model_keeps_its_shortlist(many, model, tmp_path):
    X = many[1].X.take(np.arange(100))
    model.save(tmp_path / "model")
    for loaded in (XMLClassifier.load(tmp_path / "model"), XMLClassifier.load(tmp_path / "model", predict_only=False)):
        for a, b in zip(model.predict_topk(X), loaded.predict_topk(X), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("linear_indices", lambda a: a + 10_000, "linear_indices: must be in"),
        ("postings_indptr", lambda a: a + 1, "postings_indptr: must lead from 0"),
        ("bias", lambda a: a * np.nan, "bias must be finite"),
        ("scale", lambda a: a[:-1], "scale must be float32"),
        ("labels_indices", lambda a: a.astype(np.int64), "labels_indices must be int32"),
        ("postings_data", lambda a: a * 0 + 1e30, "postings_data must be within -1 and 1"),
        ("weight", lambda a: -a, "weight at least 0"),
    ],
)
def test_a_shortlist_that_save_cannot_have_written_is_refused(model, name, change, complaint):
    described, arrays = to_arrays(model.shortlist_)
    arrays[f"shortlist_{name}"] = change(arrays[f"shortlist_{name}"])
    with pytest.raises(ModelFileError, match=complaint):
        from_arrays(described, arrays, (1500, 1100), Path("model"))
    with pytest.raises(ModelFileError, match="size, blend, rows and trees"):
        from_arrays({**described, "blend": [1, 2, None, 4]}, arrays, (1500, 1100), Path("model"))


def test_a_shortlist_larger_than_the_labels_is_refused(model):
    described, arrays = to_arrays(model.shortlist_)
    with pytest.raises(ModelFileError, match="size at most 1100, got size 1101"):
        from_arrays({**described, "size": 1101}, arrays, (1500, 1100), Path("model"))


def test_the_same_seed_gives_the_same_bits(many, model):
    again = XMLClassifier(**SETTINGS).fit(many[0].X, many[0].Y)
    for a, b in zip(model.predict_topk(many[1].X), again.predict_topk(many[1].X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_of_partial_fit_are_remembered(many):
    whole, fresh = many
    model = XMLClassifier(**SETTINGS).fit(whole.X, whole.Y)
    before = model.score(fresh.X, fresh.Y)
    wider = CSR(fresh.X.indptr, fresh.X.indices, fresh.X.data, 1501)
    model.partial_fit(wider, CSR(fresh.Y.indptr, fresh.Y.indices, fresh.Y.data, 1100))
    assert model.shortlist_.neighbors.Y.n_rows == 9000
    assert model.score(wider, fresh.Y) > before + 0.01


def test_one_class_a_row_has_no_shortlist(many):
    X, y = many[0].X, np.arange(8000) % 1100
    assert XMLClassifier(**SETTINGS, max_epochs=1).fit(X, y).shortlist_ is None
    with pytest.raises(DataError, match="shortlist: must be 0 for one class a row, got 8"):
        XMLClassifier(**SETTINGS, shortlist=8).fit(X, y)


def test_weights_of_rows_count_in_every_path(many):
    """Rows of weight 0 are as good as none."""
    X, Y = many[0].X, many[0].Y
    weight = np.ones(8000)
    weight[4000:] = 0
    model = XMLClassifier(**SETTINGS, shortlist=32, max_epochs=2).fit(X, Y, sample_weight=weight)
    assert not model.shortlist_.neighbors.weight[4000:].any()
    assert model.shortlist_.neighbors.weight[:4000].all()


def test_the_linear_path_learns_nothing_from_rows_of_weight_zero(data, rows):
    shortlist = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)
    weight, first = np.repeat(np.float32([2, 0]), 300), np.arange(300)
    with DEVICE.start():
        found = Linear.fit(rows, data.Y, weight, shortlist.copy(), DEVICE)
        alone = Linear.fit(rows.take(first), data.Y.take(first), weight[:300], shortlist[:300].copy(), DEVICE)
        even = Linear.fit(rows, data.Y, ones(600), shortlist.copy(), DEVICE)
    np.testing.assert_array_equal(found.weights.to_scipy().toarray(), alone.weights.to_scipy().toarray())
    np.testing.assert_array_equal(found.bias, alone.bias)
    assert (found.bias != even.bias).any()


def test_the_labels_of_rows_of_weight_zero_change_nothing(many):
    """Whatever order they come in, so that the starting biases, which follow their counts, stay the same."""
    X, Y = many[0].X.take(np.arange(2000)), many[0].Y
    other = Y.take(np.concatenate([np.arange(1000), np.arange(1999, 999, -1)]))
    settings = {**SETTINGS, "shortlist": 32, "max_epochs": 1, "negatives": "all"}

    def fitted(labels, weight):
        model = XMLClassifier(**settings).fit(X, labels, sample_weight=np.repeat([1.0, weight], 1000))
        return model.params_, *model.predict_topk(many[1].X, 3)

    for a, b in zip(fitted(Y.take(np.arange(2000)), 0), fitted(other, 0), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(fitted(Y.take(np.arange(2000)), 1), fitted(other, 1), strict=True):
        assert (a != b).any()


def test_a_row_with_few_labels_on_its_list_gets_the_rest_from_the_network(many, model):
    counts = np.bincount(many[0].X.indices, minlength=1500)
    rare = np.argsort(counts)[:40]
    X = sp.csr_array((np.ones(40, np.float32), (np.arange(40), rare)), shape=(40, 1500))
    whole = model.decision_function(X)
    with DEVICE.start():
        listed, _, _ = model.shortlist_.evidence(CSR.from_scipy(X), DEVICE)
    n_listed = (listed >= 0).sum(axis=1)
    k = int(n_listed.min()) + 2
    labels, scores = model.predict_topk(X, k)
    np.testing.assert_allclose(np.take_along_axis(whole, labels, axis=1), scores, rtol=1e-3, atol=1e-3)
    few = n_listed < k  # a listed label may have a margin below that of none, and is in the answer all the same
    np.testing.assert_allclose(np.sort(whole[few], axis=1)[:, : -k - 1 : -1], scores[few], rtol=1e-3, atol=0.05)
    assert (np.diff(np.sort(labels, axis=1), axis=1) > 0).all()


def test_the_best_of_a_list_are_those_of_all_its_scores_and_ties_go_to_the_smaller_label():
    rng = np.random.default_rng(0)
    A, W, b = (rng.normal(size=size).astype(np.float32) for size in ((20, 8), (50, 8), 50))
    W[25:], b[25:] = W[:25], b[:25]
    labels = np.argsort(rng.random((20, 50)), axis=1)[:, :30].astype(np.int32)
    labels[0, 2:] = -1
    bounds = np.where(labels >= 0, -(labels % 25) / 5, 9).astype(np.float32)
    logits = np.take_along_axis(A @ W[:25].T + b[:25], labels % 25, axis=1)  # of two equal labels, exactly the same
    scores = bounds - np.float32(0.3) * np.log1p(np.exp(-logits))
    best, best_scores = np.empty((20, 5), np.int32), np.empty((20, 5), np.float32)
    for i in range(20):
        best_of_list(A[i], W, b, labels[i], bounds[i], np.float32(0.3), best[i], best_scores[i])
    scores[labels < 0] = -np.inf
    order = np.lexsort((labels, -scores))[:, :5]
    np.testing.assert_array_equal(best, np.take_along_axis(labels, order, axis=1))
    np.testing.assert_allclose(best_scores, np.take_along_axis(scores, order, axis=1), rtol=1e-4)


def test_sets_too_small_for_a_blend_of_their_own_take_the_defaults():
    data = make_xmc(999, 500, 200, nnz_per_row=8, labels_per_row=2, random_state=0)
    model = XMLClassifier(**SETTINGS, max_epochs=1, shortlist=16).fit(data.X, data.Y)
    assert model.shortlist_.blend == Blend()


@pytest.mark.parametrize(("n_rows", "n_labels", "size"), [(2000, 192, 64), (1999, 192, 0), (2000, 191, 0)])
def test_labels_are_listed_from_2000_rows_on_where_they_are_64_times_those_of_a_row(n_rows, n_labels, size):
    three_each = CSR(
        3 * np.arange(n_rows + 1), np.tile(np.arange(3), n_rows), np.ones(3 * n_rows, np.float32), n_labels
    )
    assert auto_shortlist(three_each, "bce", "multilabel") == size


def test_a_store_in_memory_maps_is_learned_as_arrays_are(many, model, tmp_path):
    write_store(many[0], tmp_path / "store")
    mapped = open_store(tmp_path / "store")
    again = XMLClassifier(**SETTINGS).fit(mapped.X, mapped.Y)
    np.testing.assert_array_equal(model.predict_topk(many[1].X)[0], again.predict_topk(many[1].X)[0])


def test_ctrl_c_while_the_shortlist_is_learned_keeps_the_network(many, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("xmlsgd.shortlist.linear.Linear.fit", interrupted)
    model = XMLClassifier((8,), shortlist=16, max_epochs=1, n_jobs=1, random_state=0)
    with pytest.raises(Interrupted):
        model.fit(many[0].X, many[0].Y)
    assert model.shortlist_ is None
    assert model.predict_topk(many[0].X.span(0, 3), 2)[0].shape == (3, 2)


def test_ctrl_c_in_a_partial_fit_that_adds_features_keeps_a_whole_model(many, tmp_path):
    train = many[0]
    X, Y = train.X.to_scipy(), train.Y.to_scipy()
    model = XMLClassifier((8,), shortlist=16, max_epochs=1, n_jobs=1, random_state=0).fit(X[:, :1000], Y)
    with pytest.MonkeyPatch.context() as patch:
        run = Learner.step

        def step(self, *args):
            run(self, *args)
            raise KeyboardInterrupt

        patch.setattr(Learner, "step", step)
        with pytest.raises(Interrupted):
            model.partial_fit(X[:600], Y[:600])
    labels = model.predict_topk(X[:20], 3)[0]
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(XMLClassifier.load(tmp_path / "model").predict_topk(X[:20], 3)[0], labels)


def test_a_diverged_partial_fit_remembers_no_rows(many):
    train = many[0]
    model = XMLClassifier((8,), shortlist=16, max_epochs=1, n_jobs=1, random_state=0).fit(train.X, train.Y)
    before = model.shortlist_.neighbors.Y.n_rows
    model.set_params(optimizer="sgd", learning_rate_init=1e38)
    with pytest.raises(DivergenceError):
        model.partial_fit(train.X.span(0, 300), train.Y.span(0, 300))
    assert model.shortlist_.neighbors.Y.n_rows == before
