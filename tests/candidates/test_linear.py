"""Linear classifiers: the minimum that the solver finds, the weights that are kept, the margins."""

from __future__ import annotations

import numpy as np
import pytest

from shared.candidates import DEVICE, ones
from xmlsgd import XMLClassifier
from xmlsgd.candidates.compact import CompactLinearClassifiers
from xmlsgd.candidates.linear import LinearClassifiers, Tables
from xmlsgd.data.csr import CSR
from xmlsgd.devices.cpu import CPU


def objective(X: np.ndarray, sign: np.ndarray, cost: np.ndarray, w: np.ndarray, bias: float) -> float:
    """Return 1/2 (|w|^2 + bias^2) + sum of cost times the squared hinge."""
    slack = np.maximum(1 - sign * (X @ w + bias), 0)
    return float((w @ w + bias**2) / 2 + cost @ slack**2)


def test_the_solver_minimizes_the_squared_hinge_of_each_label_on_its_pairs_and_features(data, rows, monkeypatch):
    """Against LIBLINEAR's dual solver on the same rows, with the features of those that have the label."""
    from sklearn.svm import LinearSVC

    from xmlsgd.candidates import linear

    for name, value in (("MIN_WEIGHT", 0.0), ("TOLERANCE", 1e-4), ("MAX_PASSES", 2000)):
        monkeypatch.setattr(linear, name, value)
    candidates = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)
    weight = np.where(np.arange(600) % 7, 1.0, 0.0).astype(np.float32)
    weight[::5] *= 3
    with DEVICE.start():
        found = LinearClassifiers.fit(rows, data.Y, weight, candidates.copy(), DEVICE)
    dense, truth = rows.to_scipy().toarray().astype(np.float64), data.Y.to_scipy().toarray() != 0
    for label in range(0, 80, 9):
        paired = (truth[:, label] | (candidates == label).any(axis=1)) & (weight > 0)
        own = (dense[paired & truth[:, label]] != 0).any(axis=0)
        X, cost = dense[paired] * own, weight[paired].astype(np.float64)
        sign = np.where(truth[paired, label], 1.0, -1.0)
        machine = LinearSVC(C=1.0, tol=1e-6, max_iter=20000, random_state=0).fit(X, sign, sample_weight=cost)
        best = objective(X, sign, cost, machine.coef_[0], machine.intercept_[0])
        w = found.weights.to_scipy()[[label]].toarray()[0]
        assert not w[~own].any()
        assert objective(X, sign, cost, w, found.bias[label]) == pytest.approx(best, rel=1e-3)


@pytest.mark.slow
def test_labels_solved_in_many_chunks_are_those_solved_in_one(data, rows, monkeypatch):
    from xmlsgd.candidates import linear

    candidates = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)

    def fitted(device):
        with device.start():
            return LinearClassifiers.fit(rows, data.Y, ones(600), candidates.copy(), device)

    one = fitted(DEVICE)
    monkeypatch.setattr(linear, "CHUNK", 500)
    many = fitted(CPU(2, precision="float32"))
    for a, b in ((one.weights.indptr, many.weights.indptr), (one.weights.indices, many.weights.indices)):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.weights.data, many.weights.data)
    np.testing.assert_array_equal(one.bias, many.bias)


@pytest.mark.parametrize("chunk", [1 << 23, 500])
def test_of_more_weights_than_there_is_room_for_the_largest_are_kept(data, rows, monkeypatch, chunk):
    from xmlsgd.candidates import linear

    candidates = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)

    def fitted(most):
        monkeypatch.setattr(linear, "MIN_LIMIT", most)
        with DEVICE.start():
            return LinearClassifiers.fit(rows, data.Y, ones(600), candidates.copy(), DEVICE)

    monkeypatch.setattr(linear, "WEIGHTS_PER_ENTRY", 0)
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
        return XMLClassifier((16,)).estimate_memory(X, Y)["candidates"]

    usual, own = estimated(), int(np.diff(X.indptr) @ np.diff(Y.indptr))
    monkeypatch.setattr("xmlsgd.candidates.linear.WEIGHTS_PER_ENTRY", 0)
    monkeypatch.setattr("xmlsgd.candidates.linear.MIN_LIMIT", 100)
    assert usual - estimated() == 24 * (min(own, X.n_cols * Y.n_cols, 6 * X.nnz) - 100)


def test_margins_are_those_of_the_weights(data, rows):
    candidates = np.random.default_rng(0).integers(-1, 80, (600, 9)).astype(np.int32)
    with DEVICE.start():
        linear = LinearClassifiers.fit(
            rows, data.Y, ones(600), np.tile(np.arange(80, dtype=np.int32), (600, 1)), DEVICE
        )
        found = linear.margins(rows, candidates, DEVICE)
        unfiltered = CompactLinearClassifiers(Tables(*linear.tables[:4]), linear.bias)
        np.testing.assert_array_equal(unfiltered.margins(rows, candidates, DEVICE), found)
    whole = (rows.to_scipy() @ linear.weights.to_scipy().T).toarray() + linear.bias
    expected = np.where(candidates >= 0, np.take_along_axis(whole, np.maximum(candidates, 0), axis=1), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_label_without_rows_has_the_margin_of_none(data, rows):
    no_last = CSR(data.Y.indptr, data.Y.indices, data.Y.data, 81)
    with DEVICE.start():
        linear = LinearClassifiers.fit(rows, no_last, ones(600), np.full((600, 1), -1, np.int32), DEVICE)
    assert linear.bias[80] == -1
    assert linear.weights.indptr[80] == linear.weights.indptr[81]


def test_linear_classifiers_learn_nothing_from_rows_of_weight_zero(data, rows):
    candidates = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)
    weight, first = np.repeat(np.float32([2, 0]), 300), np.arange(300)
    with DEVICE.start():
        found = LinearClassifiers.fit(rows, data.Y, weight, candidates.copy(), DEVICE)
        alone = LinearClassifiers.fit(
            rows.take(first), data.Y.take(first), weight[:300], candidates[:300].copy(), DEVICE
        )
        even = LinearClassifiers.fit(rows, data.Y, ones(600), candidates.copy(), DEVICE)
    np.testing.assert_array_equal(found.weights.to_scipy().toarray(), alone.weights.to_scipy().toarray())
    np.testing.assert_array_equal(found.bias, alone.bias)
    assert (found.bias != even.bias).any()
