"""Co-occurrence of features and labels: against counts by hand, and in every odd case."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import DEVICE, ones
from xmlsgd import XMLClassifier
from xmlsgd.candidates.cooccurrence import N_COOCCURRING, SHRINKAGE, Cooccurrence
from xmlsgd.candidates.fitting import CandidateRows, _learned_pairs
from xmlsgd.candidates.knn import KNNIndex
from xmlsgd.candidates.linear import NONE_HELD_OUT
from xmlsgd.candidates.weighting import idf_weights, unit_rows
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.cpu import CPU
from xmlsgd.errors import ModelFileError


def counted(X: CSR, Y: CSR, weight: np.ndarray, device: CPU = DEVICE) -> Cooccurrence:
    with device.start():
        return Cooccurrence.count(X, Y, weight, device)


def by_hand(X: CSR, Y: CSR, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the rows with feature and label (F, L), and with the feature (F,)."""
    has = (X.to_scipy().toarray() != 0) * weight[:, None]
    return has.T @ Y.to_scipy().toarray(), has.sum(axis=0)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("most", [200, 5])
def test_a_feature_keeps_the_labels_that_most_of_its_rows_have(data, monkeypatch, most, n_threads):
    monkeypatch.setattr("xmlsgd.candidates.cooccurrence.N_LABELS", most)
    weight = np.random.default_rng(0).random(600).astype(np.float32)
    weight[::7] = 0
    found = counted(data.X, data.Y, weight, CPU(n_threads, precision="float32"))
    counts, totals = by_hand(data.X, data.Y, weight)
    np.testing.assert_allclose(found.totals, totals, rtol=1e-5)
    shares = counts / np.maximum(totals, 1e-20)[:, None]
    kept = found.shares.to_scipy().toarray()
    np.testing.assert_allclose(kept[kept > 0], shares[kept > 0], rtol=1e-5)
    np.testing.assert_array_equal((kept > 0).sum(axis=1), np.minimum((shares > 0).sum(axis=1), most))
    least = np.where(kept > 0, kept, 2).min(axis=1)
    assert (np.where(kept > 0, 0, shares).max(axis=1) <= least + 1e-6).all()


def test_rows_beyond_2_to_the_24_are_counted():
    """A sum in float32 would stay at 2^24: here one row of that weight, which all others follow."""
    n = 100
    X, Y = (CSR(np.arange(n + 1), np.zeros(n, np.int32), ones(n), 1) for _ in range(2))
    weight = ones(n)
    weight[0] = 2**24
    assert counted(X, Y, weight).totals.tolist() == [2**24 + n]  # the next float32


@pytest.mark.parametrize("n_threads", [1, 2])
def test_candidates_are_the_given_labels_and_those_that_co_occur_most_beside_them(data, monkeypatch, n_threads):
    monkeypatch.setattr("xmlsgd.candidates.cooccurrence.N_LABELS", 80)
    device, rows = CPU(n_threads, precision="float32"), unit_rows(data.X, None, DEVICE)
    found = counted(rows, data.Y, ones(600))
    given = np.random.default_rng(0).permuted(np.tile(np.arange(80, dtype=np.int32), (600, 1)), axis=1)[:, :6]
    given[::3, 2:4] = -1
    with device.start():
        labels, scores = found.candidates(rows, given, device)
    counts, totals = by_hand(rows, data.Y, ones(600))
    dense = rows.to_scipy().toarray()
    expected = dense @ (counts / (totals + SHRINKAGE)[:, None]) / dense.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(labels[:, :6], given)
    assert labels.shape == scores.shape == (600, 6 + N_COOCCURRING)
    there = np.take_along_axis(expected, np.maximum(labels, 0), axis=1)
    np.testing.assert_allclose(scores, np.where(labels >= 0, there, 0), rtol=1e-3, atol=1e-6)
    for i in range(600):
        others = np.setdiff1d(np.arange(80), given[i])
        best = np.sort(expected[i, others])[::-1][:N_COOCCURRING]
        np.testing.assert_allclose(np.sort(scores[i, 6:])[::-1], best, rtol=1e-3, atol=1e-6)
        listed = labels[i][labels[i] >= 0]
        assert len(set(listed)) == len(listed)


def test_the_size_of_an_entry_counts_and_not_its_sign_and_rows_without_entries_have_no_candidates(data):
    rows = unit_rows(data.X, None, DEVICE)
    signs = np.where(np.arange(rows.nnz) % 3, 1, -1).astype(np.float32)
    signed, empty = CSR(rows.indptr, rows.indices, rows.data * signs, 300), CSR.from_scipy(sp.csr_array((4, 300)))
    found, given = counted(rows, data.Y, ones(600)), np.full((600, 1), -1, np.int32)
    with DEVICE.start():
        for a, b in zip(found.candidates(rows, given, DEVICE), found.candidates(signed, given, DEVICE), strict=True):
            np.testing.assert_array_equal(a, b)
        labels, scores = found.candidates(empty, given[:4], DEVICE)
    assert (labels == -1).all()
    assert not scores.any()


def test_stored_zeros_and_rows_of_weight_zero_count_for_nothing(data):
    X = data.X.to_scipy().tocoo()
    places = np.append(X.row, np.arange(200)), np.append(X.col, np.zeros(200, int))
    stored = sp.coo_array((np.append(X.data, np.zeros(200, np.float32)), places), shape=X.shape)
    plain, with_zeros = (counted(each, data.Y, ones(600)) for each in (data.X, CSR.from_scipy(stored.tocsr())))
    np.testing.assert_array_equal(plain.totals, with_zeros.totals)
    np.testing.assert_array_equal(plain.shares.to_scipy().toarray(), with_zeros.shares.to_scipy().toarray())
    nothing = counted(data.X, data.Y, np.zeros(600, np.float32))
    assert nothing.shares.nnz == 0
    assert not nothing.totals.any()


def test_a_row_of_nearly_all_features_and_labels_is_neither_counted_nor_learned(data, monkeypatch):
    every = CSR.from_scipy(sp.csr_array(np.ones((1, 300), np.float32))), CSR.from_scipy(sp.csr_array(np.ones((1, 80))))
    X, Y = (
        CSR.from_scipy(sp.vstack([a.to_scipy(), b.to_scipy()]).tocsr())
        for a, b in zip((data.X, data.Y), every, strict=True)
    )
    nothing, rows = np.full((601, 1), -1, np.int32), CandidateRows(Dataset(X, Y), ones(601), [], 1)
    for most, n in (300 * 80, 601), (300 * 80 - 1, 600):
        monkeypatch.setattr("xmlsgd.candidates.weighting.MOST_PAIRS", most)
        expected, found = counted(X.span(0, n), Y.span(0, n), ones(n)), counted(X, Y, ones(601))
        np.testing.assert_array_equal(found.totals, expected.totals)
        np.testing.assert_array_equal(found.shares.data, expected.shares.data)
        with DEVICE.start():
            pairs = _learned_pairs(rows, X, nothing, NONE_HELD_OUT, DEVICE)
        assert np.isin(pairs.rows, (600, -601)).sum() == (80 if n == 601 else 0)


@pytest.mark.parametrize("most", [80, 5])
def test_rows_with_new_features_and_labels_may_be_added(data, monkeypatch, most):
    rest = np.arange(400, 600)
    monkeypatch.setattr("xmlsgd.candidates.cooccurrence.N_LABELS", most)
    X, Y = (CSR.from_scipy(part.to_scipy()[:400, :width]) for part, width in ((data.X, 200), (data.Y, 50)))
    old = counted(X, Y, ones(400))
    with DEVICE.start():
        grown = old.with_rows(data.X.take(rest), data.Y.take(rest), ones(200), DEVICE)
    counts, totals = by_hand(data.X.take(rest), data.Y.take(rest), ones(200))
    before = by_hand(X, Y, ones(400))
    counts[:200, :50] += before[0]
    totals[:200] += before[1]
    shares, kept = counts / np.maximum(totals, 1)[:, None], grown.shares.to_scipy().toarray()
    np.testing.assert_allclose(grown.totals, totals, rtol=1e-5)
    assert grown.shares.to_scipy().has_canonical_format
    if most == 80:
        np.testing.assert_allclose(kept, shares, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal((kept > 0).sum(axis=1), np.minimum((shares > 0).sum(axis=1), most))
    assert (kept <= shares + 1e-6).all()  # what was left out before is not counted


def test_pointers_and_labels_out_of_range_are_refused_and_nothing_else_is_read(data):
    rows, given = unit_rows(data.X, None, DEVICE), np.full((600, 1), -1, np.int32)
    found = counted(rows, data.Y, ones(600))
    shares = found.shares
    for indptr, indices in (
        (np.where(np.arange(301) == 150, 1 << 60, shares.indptr), shares.indices),
        (shares.indptr, np.where(np.arange(shares.nnz) % 50, shares.indices, 80).astype(np.int32)),
        (shares.indptr, np.where(np.arange(shares.nnz) % 50, shares.indices, -5).astype(np.int32)),
    ):
        damaged = Cooccurrence(CSR(indptr, indices, shares.data, 80), found.totals)
        with DEVICE.start(), pytest.raises(ModelFileError, match="damaged"):
            damaged.candidates(rows, given, DEVICE)
    with DEVICE.start():  # the scratch is as clean as before
        labels, _ = found.candidates(rows, given, DEVICE)
    assert labels.max() < 80


@pytest.mark.filterwarnings("ignore:X. 26% of the rows")
def test_labels_that_one_frequent_feature_decides_are_found_though_no_neighbor_has_them():
    """Rows of a rare word that says nothing and a frequent one, which is too frequent for the neighbors."""
    rng, n = np.random.default_rng(0), 12_000
    frequent, rare = rng.integers(0, 2, n), 2 + rng.integers(0, 2_000, n)
    labels = 200 * frequent + rng.integers(0, 10, n)
    values, pointer = np.tile(np.float32([1, 0.2]), n), 2 * np.arange(n + 1)
    X = sp.csr_array((values, np.stack([frequent, rare], axis=1).ravel(), pointer), shape=(n, 2_002))
    Y = sp.csr_array((np.ones(n, np.float32), labels, np.arange(n + 1)), shape=(n, 400))
    rows, asked = CSR.from_scipy(X), np.arange(0, n, 50)
    scaled, truth = unit_rows(rows, idf_weights(rows), DEVICE), Y.toarray()[asked] != 0
    model = XMLClassifier((8,), max_epochs=1, candidates=4, n_jobs=1, random_state=0).fit(X, Y)
    with DEVICE.start():
        index = KNNIndex.build(scaled, CSR.from_scipy(Y, "Y"), ones(n))
        named, _ = index.votes(scaled.take(asked), 4, DEVICE)
        listed, _ = model.candidates_.cooccurrence.candidates(rows.take(asked), named, DEVICE)

    def recall(found: np.ndarray) -> float:
        return float((np.take_along_axis(truth, np.maximum(found, 0), axis=1) & (found >= 0)).any(axis=1).mean())

    assert recall(named) < 0.8
    assert recall(listed) == 1
