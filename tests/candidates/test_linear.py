"""Linear classifiers: the minimum that the solver finds, the weights that are kept, the margins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import DEVICE, fit_linear, ones
from xmlsgd import XMLClassifier
from xmlsgd.candidates.compact import CompactLinearClassifiers
from xmlsgd.candidates.fitting import CandidateRows, _learned_pairs
from xmlsgd.candidates.linear import (
    COST,
    NONE_HELD_OUT,
    LinearClassifiers,
    Tables,
    find_pairs,
    n_random_negatives,
    to_tables,
    with_random_negatives,
)  # fmt: skip
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.cpu import CPU


def objective(X: np.ndarray, sign: np.ndarray, cost: np.ndarray, w: np.ndarray, bias: float) -> float:
    """Return 1/2 (|w|^2 + bias^2) + sum of cost times the squared hinge."""
    slack = np.maximum(1 - sign * (X @ w + bias), 0)
    return float((w @ w + bias**2) / 2 + cost @ slack**2)


def test_the_solver_minimizes_the_squared_hinge_of_each_label_on_its_pairs_and_features(data, rows, monkeypatch):
    """Against LIBLINEAR's dual solver on the same rows, with the features of those that have the label."""
    from sklearn.svm import LinearSVC

    from xmlsgd.candidates import linear

    for name, value in (("MIN_WEIGHT", 0.0), ("TOLERANCE", 1e-4), ("PASSES", 2000)):
        monkeypatch.setattr(linear, name, value)
    candidates = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)
    weight = np.where(np.arange(600) % 7, 1.0, 0.0).astype(np.float32)
    weight[::5] *= 3
    with DEVICE.start():
        found = fit_linear(rows, data.Y, weight, candidates)
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
            return fit_linear(rows, data.Y, ones(600), candidates, device)

    monkeypatch.setattr(linear, "CHUNKS", 1)
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
            return fit_linear(rows, data.Y, ones(600), candidates)

    monkeypatch.setattr(linear, "WEIGHTS_PER_ENTRY", 0)
    whole = fitted(1 << 20)
    monkeypatch.setattr(linear, "CHUNKS", 1)
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


@pytest.mark.parametrize(("form", "n_features"), [("dense matrix", 100), ("hash tables", 300)])
def test_margins_are_those_of_the_weights(data, rows, form, n_features):
    candidates = np.random.default_rng(0).integers(-1, 80, (600, 9)).astype(np.int32)
    rows = CSR.from_scipy(sp.csr_array(rows.to_scipy().toarray().reshape(600, -1, n_features).sum(axis=1)))
    with DEVICE.start():
        linear = fit_linear(rows, data.Y, ones(600), np.tile(np.arange(80, dtype=np.int32), (600, 1)))
        assert (len(linear.tables.keys) > 0) == (form == "hash tables")
        found = linear.margins(rows, candidates, DEVICE)
    whole = (rows.to_scipy() @ linear.weights.to_scipy().T).toarray() + linear.bias
    expected = np.where(candidates >= 0, np.take_along_axis(whole, np.maximum(candidates, 0), axis=1), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_weights_are_found_also_where_their_tables_are_searched_from_the_end_on():
    """Of 2000 tables with four buckets, many have more than eight weights in the last, and so some in the first."""
    rng = np.random.default_rng(0)
    weights = np.zeros((2000, 500), np.float32)
    np.put_along_axis(weights, np.argsort(rng.random(weights.shape), axis=1)[:, :28], rng.normal(size=(2000, 28)), 1)
    matrix = CSR.from_scipy(sp.csr_array(weights))
    X, labels = CSR.from_scipy(sp.csr_array(np.eye(500, dtype=np.float32))), np.arange(2000, dtype=np.int32)
    for kind in (np.float32, np.int8):
        rounded = CSR(matrix.indptr, matrix.indices, (9 * matrix.data).astype(kind), 500)
        linear = CompactLinearClassifiers(to_tables(rounded, 1.0, np.int32), np.zeros(2000, np.float32))
        assert linear.tables.starts.tolist() == list(range(0, 8001, 4))
        with DEVICE.start():
            found = linear.margins(X, np.tile(labels, (500, 1)), DEVICE)
        np.testing.assert_allclose(found, rounded.to_scipy().toarray().T, atol=1e-5)


@pytest.mark.parametrize(("n_features", "is_dense"), [(48, True), (49, False)])
@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_weights_are_a_dense_matrix_if_that_takes_no_more_bytes_than_hash_tables(n_features, is_dense, kind):
    """A label of eight weights has three buckets of eight slots, each of the size of two values."""
    weights = CSR(np.int64([0, 8]), np.arange(8, dtype=np.int32), np.ones(8, kind), n_features)
    tables = to_tables(weights, 2, np.int32 if kind is np.float32 else np.int8)
    assert (len(tables.keys) == 0) == is_dense
    assert len(tables.values) == (n_features if is_dense else 48 if kind is np.float32 else 24)


@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_a_damaged_table_without_a_free_slot_ends_the_search(kind):
    tables = Tables(np.array([0, 4]), np.full(64 if kind == np.float32 else 32, 7, np.int32), np.ones(64, kind))
    X = CSR.from_scipy(sp.csr_array(np.float32([[1, 1]])))
    with DEVICE.start():
        found = CompactLinearClassifiers(tables, np.float32([0.5])).margins(X, np.zeros((1, 1), np.int32), DEVICE)
    assert found.tolist() == [[0.5]]


def test_a_label_without_rows_has_the_margin_of_none(data, rows):
    no_last = CSR(data.Y.indptr, data.Y.indices, data.Y.data, 81)
    with DEVICE.start():
        linear = fit_linear(rows, no_last, ones(600), np.full((600, 1), -1, np.int32))
    assert linear.bias[80] == -1
    assert linear.weights.indptr[80] == linear.weights.indptr[81]


def test_linear_classifiers_learn_nothing_from_rows_of_weight_zero(data, rows):
    candidates = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :30].astype(np.int32)
    weight, first = np.repeat(np.float32([2, 0]), 300), np.arange(300)
    with DEVICE.start():
        found = fit_linear(rows, data.Y, weight, candidates)
        alone = fit_linear(rows.take(first), data.Y.take(first), weight[:300], candidates[:300])
        even = fit_linear(rows, data.Y, ones(600), candidates)
    np.testing.assert_array_equal(found.weights.to_scipy().toarray(), alone.weights.to_scipy().toarray())
    np.testing.assert_array_equal(found.bias, alone.bias)
    assert (found.bias != even.bias).any()


class TestRandomNegatives:
    """Rows that a label neither has nor is a candidate of, drawn for each label."""

    def added(self, data, rows, weight, device=DEVICE):
        """Return the rows of label 5 before, and those that are added."""
        candidates = np.argsort(np.random.default_rng(0).random((600, 80)), axis=1)[:, :10].astype(np.int32)
        with device.start():
            pairs = find_pairs(rows, data.Y, weight, candidates, device)
            more = with_random_negatives(pairs, len(weight) - 100, device)
        before, after = (each.rows[each.starts[5] : each.starts[6]] for each in (pairs, more))
        np.testing.assert_array_equal(after[: len(before)], before)
        lengths = np.diff(rows.indptr)
        of_all = np.where(more.rows >= 0, more.rows, -1 - more.rows)
        assert more.entries[-1] == lengths[of_all].sum()
        assert more.entries[6] == lengths[of_all[: more.starts[6]]].sum()
        return before, after[len(before) :]

    def test_they_are_other_rows_that_count_each_once(self, data, rows):
        weight = ones(600)
        weight[::3] = 0
        before, added = self.added(data, rows, weight)
        found = -1 - added
        assert 20 < len(found) <= 64
        assert len(set(found)) == len(found)
        assert (weight[found] > 0).all()
        assert found.max() < 500
        assert not np.isin(found, np.where(before >= 0, before, -1 - before)).any()

    def test_of_few_rows_each_counts_once(self, data, rows):
        with DEVICE.start():
            few, none = Dataset(rows.take(np.arange(9)), data.Y.take(np.arange(9))), np.full((9, 1), -1, np.int32)
            pairs = with_random_negatives(find_pairs(few.X, few.Y, ones(9), none, DEVICE), 9, DEVICE)
        for label in np.unique(few.Y.indices):
            of_label = pairs.rows[pairs.starts[label] : pairs.starts[label + 1]]
            assert sorted(np.where(of_label >= 0, of_label, -1 - of_label)) == list(range(9))

    def test_they_are_never_label_rows(self, data, rows):
        given, nothing = CandidateRows(data, ones(600), [], 1, n_label_rows=100), np.full((600, 1), -1, np.int32)
        with DEVICE.start():
            pairs = _learned_pairs(given, rows, nothing, NONE_HELD_OUT, DEVICE)
        assert pairs.rows.max() > 500
        assert 400 < (-1 - pairs.rows).max() < 500

    def test_they_do_not_depend_on_the_number_of_threads(self, data, rows):
        one = self.added(data, rows, ones(600))[1]
        np.testing.assert_array_equal(one, self.added(data, rows, ones(600), CPU(2, precision="float32"))[1])

    def test_a_label_that_is_a_candidate_of_no_row_learns_what_other_rows_look_like(self, data, rows):
        with DEVICE.start():
            pairs = find_pairs(rows, data.Y, ones(600), np.full((600, 1), -1, np.int32), DEVICE)
            others = np.setdiff1d(np.arange(600), pairs.rows[: pairs.starts[1]])

            def mean_margin(pairs):
                linear, _ = LinearClassifiers.fit_and_score(pairs, COST, NONE_HELD_OUT, DEVICE)
                return linear.margins(rows.take(others), np.zeros((len(others), 1), np.int32), DEVICE).mean()

            assert mean_margin(pairs) > 0
            assert mean_margin(with_random_negatives(pairs, 600, DEVICE)) < -0.3

    def test_there_are_fewer_where_labels_outnumber_rows(self):
        assert n_random_negatives(100, 10) == 64
        assert n_random_negatives(400_000_000, 670_000) == 37
        assert n_random_negatives(0, 0) == 64
