"""Neighbors of a row and their votes: against votes by hand, and in every odd case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import DEVICE, ones
from xmlsgd.candidates import knn
from xmlsgd.candidates.knn import N_NEIGHBORS, KNNIndex
from xmlsgd.candidates.weighting import document_frequency, idf_weights, unit_rows
from xmlsgd.data.csr import CSR
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cpu.kernels import knn as kernels
from xmlsgd.devices.cpu.kernels.knn import SHORT_ROW, read_order
from xmlsgd.errors import ModelFileError


def votes_by_hand(similarity: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the shares (n, L) of the votes of the nearest rows, by cosines (n, n_train)."""
    shares = np.zeros((len(similarity), Y.shape[1]))
    for i, cosines in enumerate(similarity):
        near = [j for j in np.argsort(-cosines, kind="stable")[:N_NEIGHBORS] if cosines[j] > 1e-20]
        power = weight[near] * cosines[near] ** 2
        shares[i] = power @ Y[near] / max(power.sum(), 1e-20)
    return shares


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("own", [True, False])
def test_neighbors_vote_with_the_square_of_their_cosine_and_no_row_for_itself(data, rows, own, n_threads):
    weight = np.random.default_rng(0).random(data.n_rows).astype(np.float32)
    device = CPU(n_threads, precision="float32")
    with device.start():
        labels, shares = KNNIndex.build(rows, data.Y, weight).votes(rows, 80, device, own=0 if own else -1)
    dense = rows.to_scipy().toarray().astype(np.float64)
    similarity = dense @ dense.T
    if own:
        np.fill_diagonal(similarity, 0)
    expected = votes_by_hand(similarity, data.Y.to_scipy().toarray(), weight)
    found = np.zeros_like(expected)
    row, j = np.nonzero(labels >= 0)
    found[row, labels[row, j]] = shares[row, j]
    # Rounding decides between neighbors that are equally near in exact arithmetic.
    assert np.mean(np.abs(found - expected).max(axis=1) < 1e-4) > 0.97
    assert ((labels >= 0) == (shares > 0)).all()


class Counted(list[int]):
    """A list that counts how often its items are read."""

    reads = 0

    def __getitem__(self, at):
        self.reads += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("n", [0, 1, SHORT_ROW, SHORT_ROW + 1, 5000])
def test_the_shortest_posting_lists_are_read_first_after_few_looks_at_each(n, monkeypatch):
    monkeypatch.setattr(kernels, "_count_sort", kernels._count_sort.py_func)
    sizes = np.random.default_rng(n).integers(100, size=n)
    starts, lengths, order = np.append(0, np.cumsum(sizes)), Counted([0] * n), np.empty(n, np.int64)
    assert read_order.py_func(np.arange(n), starts, starts[-1], sizes.max(initial=0), lengths, order)
    np.testing.assert_array_equal(order, np.argsort(sizes, kind="stable"))
    assert lengths.reads <= (SHORT_ROW + 1) * n
    np.testing.assert_array_equal(lengths[:], np.sort(sizes))


def test_neighbors_of_weight_zero_name_no_labels():
    Y = CSR(np.arange(0, 701, 7), np.tile(np.arange(7, dtype=np.int32), 100), np.ones(700, np.float32), 7)
    X = CSR(np.arange(101), np.zeros(100, np.int32), np.ones(100, np.float32), 1)
    with DEVICE.start():
        labels, shares = KNNIndex.build(X, Y, np.zeros(100, np.float32)).votes(X, 4, DEVICE)
    assert (labels == -1).all()
    assert not shares.any()


def test_a_row_of_enormous_values_changes_no_other_row(data):
    X = data.X.to_scipy()[:50].tocsr()
    with_outlier = sp.vstack([X[:1] * np.float32(3e37), X[1:]]).tocsr()
    scale = idf_weights(data.X)
    plain, other = (unit_rows(CSR.from_scipy(each), scale, DEVICE) for each in (X, with_outlier))
    np.testing.assert_array_equal(plain.data[X.indptr[1] :], other.data[X.indptr[1] :])
    np.testing.assert_allclose(plain.data, other.data, rtol=1e-6)
    assert np.abs(unit_rows(CSR.from_scipy(X * np.float32(1e-30)), scale, DEVICE).data - plain.data).max() < 1e-6


def test_stored_zeros_are_no_features(data, rows):
    X = data.X.to_scipy().tocoo()
    full = sp.coo_array(
        (np.append(X.data, np.zeros(200, np.float32)), (np.append(X.row, np.arange(200)), np.append(X.col, [0] * 200))),
        shape=X.shape,
    )
    stored = CSR.from_scipy(full.tocsr())
    assert stored.nnz > data.X.nnz
    np.testing.assert_array_equal(idf_weights(stored), idf_weights(data.X))
    zeros, none = (
        KNNIndex.build(each, data.Y, ones(each.n_rows))
        for each in (unit_rows(stored, idf_weights(stored), DEVICE), rows)
    )
    assert zeros.postings.nnz == none.postings.nnz
    np.testing.assert_array_equal(zeros.postings.indices, none.postings.indices)


def test_a_feature_that_no_row_has_weighs_as_much_as_one_of_a_single_row():
    X = CSR.from_scipy(sp.csr_array(np.float32([[1, 0, 1], [0, 0, 1]])))
    single, absent, common = idf_weights(X)
    assert absent == single > common


def test_votes_are_shares_however_small_the_weights_of_rows(data, rows):
    with DEVICE.start():
        found = [KNNIndex.build(rows, data.Y, w * ones(data.n_rows)).votes(rows, 8, DEVICE)[1] for w in (1, 1e-30)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-6)


def test_a_row_without_features_has_no_neighbors(data, rows):
    with DEVICE.start():
        memory = KNNIndex.build(rows, data.Y, ones(data.n_rows))
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
        labels, shares = KNNIndex.build(X, Y, np.zeros(40, np.float32)).votes(X, 3, DEVICE)
        assert (labels == -1).all()
        assert not shares.any()
        labels, shares = KNNIndex.build(X, Y, ones(40)).votes(X, 3, DEVICE)
    assert labels.max() < 3
    assert ((shares >= 0) & (shares <= 1)).all()


def test_a_row_with_a_cosine_of_nearly_0_is_no_neighbor():
    X, Y = CSR.from_scipy(sp.csr_array(np.float32([[1, 1e-21]]))), CSR.from_scipy(sp.csr_array([[True]]))
    query = CSR.from_scipy(sp.csr_array(np.float32([[0, 1]])))
    with DEVICE.start():
        labels, shares = KNNIndex.build(X, Y, ones(1)).votes(query, 1, DEVICE)
    assert (labels.tolist(), shares.tolist()) == ([[-1]], [[0]])


def test_rows_and_labels_out_of_range_are_refused_and_nothing_else_is_read(data, rows):
    index = KNNIndex.build(rows, data.Y, ones(600))
    postings, Y = index.postings, index.Y
    damaged = [
        replace(index, Y=replace(Y, indptr=Y.indptr[:-1]), weight=index.weight[:-1]),  # without the last row
        replace(index, postings=replace(postings, indices=postings.indices * 0 - 1)),
        *(replace(index, Y=replace(Y, indices=Y.indices * 0 + label)) for label in (80, -1)),
    ]
    with DEVICE.start():
        before = index.votes(rows, 8, DEVICE)
        for each in damaged:
            with pytest.raises(ModelFileError, match="damaged"):
                each.votes(rows, 8, DEVICE)
        np.testing.assert_array_equal(index.votes(rows, 8, DEVICE), before)  # the scratch is as clean as before


def test_rows_may_be_added_to_an_index_with_new_features_and_labels(data, rows):
    rest = np.arange(400, 600)
    X, Y = (CSR.from_scipy(part.to_scipy()[:400, :width]) for part, width in ((rows, 200), (data.Y, 50)))
    index, seen = KNNIndex.build(X, Y, ones(400)), document_frequency(X) > 0
    with DEVICE.start():
        grown = index.with_rows(rows.take(rest), data.Y.take(rest), ones(200), seen, DEVICE)
    known = [sp.csr_array((part.data, part.indices, part.indptr), shape=(400, n)) for part, n in ((X, 300), (Y, 80))]
    wide_X, wide_Y = (
        CSR.from_scipy(sp.vstack([old, part.to_scipy()[400:]]).tocsr())
        for old, part in zip(known, (rows, data.Y), strict=True)
    )
    whole = KNNIndex.build(wide_X, wide_Y, ones(600))
    np.testing.assert_array_equal(grown.postings.to_scipy().toarray(), whole.postings.to_scipy().toarray())
    np.testing.assert_array_equal(grown.Y.to_scipy().toarray() != 0, whole.Y.to_scipy().toarray() != 0)


def test_a_feature_that_is_or_becomes_too_frequent_stays_out_of_the_index(monkeypatch, data, rows):
    monkeypatch.setattr(knn, "MAX_POSTINGS", 20)
    X, Y, rest = rows.span(0, 400), data.Y.span(0, 400), slice(400, 600)
    index = KNNIndex.build(X, Y, ones(400))
    assert (np.diff(index.postings.indptr)[document_frequency(X) > 20] == 0).all()
    with DEVICE.start():
        grown = index.with_rows(rows[rest], data.Y[rest], ones(200), document_frequency(X) > 0, DEVICE)
    whole = KNNIndex.build(rows.span(0, 600), data.Y.span(0, 600), ones(600))
    np.testing.assert_array_equal(grown.postings.to_scipy().toarray(), whole.postings.to_scipy().toarray())


def test_the_query_of_a_training_row_reads_fewer_postings():
    X = CSR.from_scipy(sp.csr_array(np.float32([[1, 1], [1, 0], [0, 1], [0, 1]])))
    Y = CSR.from_scipy(sp.eye_array(4, dtype=np.float32).tocsr())
    with DEVICE.start():
        for own, budget, expected in ((-1, 2, [0, 1]), (0, 2, [1]), (-1, 5, [0, 1, 2, 3]), (0, 5, [1, 2, 3])):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(knn, "MAX_POSTINGS" if own < 0 else "TRAINING_POSTINGS", budget)
                labels, _ = KNNIndex.build(X.span(0, 4), Y, ones(4)).votes(X.span(0, 1), 4, DEVICE, own)
            assert sorted(labels[labels >= 0]) == expected


def test_rare_features_weigh_more_and_rows_have_norm_one(data, rows):
    scale, counts = idf_weights(data.X), np.bincount(data.X.indices, minlength=300)
    assert scale[counts.argmax()] < scale[counts.argmin()]
    assert (scale > 0).all()
    np.testing.assert_allclose(np.sqrt(rows.to_scipy().power(2).sum(axis=1)), 1, rtol=1e-5)


def test_rows_are_scaled_by_feature_and_counted_in_parts_as_at_once(data, rows, monkeypatch):
    scale = idf_weights(data.X)
    scaled = data.X.to_scipy().toarray().astype(np.float64) * scale
    np.testing.assert_allclose(rows.to_scipy().toarray(), scaled / np.linalg.norm(scaled, axis=1)[:, None], rtol=1e-6)
    monkeypatch.setattr("xmlsgd.candidates.weighting.ENTRIES", 50)
    np.testing.assert_array_equal(idf_weights(data.X), scale)


def test_rows_of_zeros_stay_zeros():
    X = CSR(np.array([0, 2, 3]), np.array([0, 1, 0], np.int32), np.zeros(3, np.float32), 2)
    for scale in (None, np.float32([1, 2])):
        assert unit_rows(X, scale, DEVICE).data.tolist() == [0, 0, 0]


def test_without_a_scale_rows_keep_their_proportions(data):
    plain, values = unit_rows(data.X, None, DEVICE).to_scipy().toarray(), data.X.to_scipy().toarray()
    np.testing.assert_allclose(plain, values / np.linalg.norm(values, axis=1)[:, None], rtol=1e-6)


def test_features_of_too_many_rows_have_no_postings(data, rows, monkeypatch):
    counts = np.bincount(rows.indices, minlength=300)
    dense = rows.to_scipy().toarray().T
    dense[counts > np.median(counts)] = 0
    monkeypatch.setattr("xmlsgd.candidates.knn.MAX_POSTINGS", int(np.median(counts)))
    found = KNNIndex.build(rows, data.Y, ones(600)).postings
    np.testing.assert_array_equal(found.to_scipy().toarray(), dense)
    assert found.nnz == np.count_nonzero(dense)


def test_the_index_shares_no_memory_with_the_callers_labels_and_weights(data, rows):
    Y, weight = CSR(data.Y.indptr.copy(), data.Y.indices.copy(), data.Y.data, data.Y.n_cols), ones(data.n_rows)
    index = KNNIndex.build(rows, Y, weight)
    with DEVICE.start():
        before = index.votes(rows, 5, DEVICE)
        Y.indices[:], Y.indptr[1:-1], weight[:] = 0, 0, 0
        after = index.votes(rows, 5, DEVICE)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
