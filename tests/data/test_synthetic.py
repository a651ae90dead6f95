"""The synthetic generator: shape, power laws, canonical rows, determinism, and a structure that can be learned."""

import numpy as np
import pytest

from xmlsgd.data import synthetic
from xmlsgd.data.synthetic import make_xmc, split_rows
from xmlsgd.errors import DataError


@pytest.fixture(scope="module")
def dataset():
    return make_xmc(4000, 3000, 1000, nnz_per_row=40, labels_per_row=4, random_state=1)


def head_share(indices, share):
    """Return the share of entries that the most frequent `share` of all columns has."""
    counts = np.sort(np.bincount(indices))[::-1]
    return counts[: round(share * len(counts))].sum() / counts.sum()


def arrays(dataset):
    return [array for part in (dataset.X, dataset.Y) for array in (part.indptr, part.indices, part.data)]


def test_shape_and_means_are_those_asked_for(dataset):
    assert dataset.X.shape == (4000, 3000)
    assert dataset.Y.shape == (4000, 1000)
    assert dataset.X.nnz / 4000 == pytest.approx(40, rel=0.03)
    assert dataset.Y.nnz / 4000 == pytest.approx(4, rel=0.03)


def test_every_row_has_features_and_labels_and_lengths_differ(dataset):
    lengths = np.diff(dataset.X.indptr)
    assert min(lengths.min(), np.diff(dataset.Y.indptr).min()) >= 1
    assert np.std(np.log(lengths)) == pytest.approx(0.5, abs=0.1)


def test_rows_are_canonical(dataset):
    for part in (dataset.X, dataset.Y):
        assert [array.dtype for array in (part.indptr, part.indices, part.data)] == [np.int64, np.int32, np.float32]
        assert part.indptr[0] == 0
        assert part.indptr[-1] == part.nnz == len(part.data)
        keys = np.repeat(np.arange(part.n_rows), np.diff(part.indptr)) * part.n_cols + part.indices
        assert (np.diff(keys) > 0).all()
        assert part.indices.min() >= 0
        assert part.indices.max() < part.n_cols


def test_values_are_positive_rows_of_norm_one(dataset):
    assert dataset.X.data.min() > 0
    norms = np.sqrt(np.add.reduceat(dataset.X.data.astype(np.float64) ** 2, dataset.X.indptr[:-1]))
    np.testing.assert_allclose(norms, 1, atol=1e-5)
    np.testing.assert_array_equal(dataset.Y.data, 1)


def test_labels_and_features_follow_power_laws(dataset):
    # A Zipf law over 1,000 labels gives the first 10 of them H(10) / H(1000) = 39 % of the draws; that a row has a
    # label once takes some of it away.
    assert 0.25 < head_share(dataset.Y.indices, 0.01) < 0.40
    assert head_share(dataset.X.indices, 0.1) > 0.4
    counts = np.sort(np.bincount(dataset.Y.indices, minlength=1000))[::-1]
    slope = np.polyfit(np.log(np.arange(10, 200)), np.log(counts[10:200]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.15)


def test_exponent_zero_gives_even_labels():
    even = make_xmc(2000, 300, 100, nnz_per_row=5, labels_per_row=3, label_exponent=0)
    assert head_share(even.Y.indices, 0.1) < 0.15


def test_frequent_labels_and_features_have_no_special_ids(dataset):
    for part in (dataset.X, dataset.Y):
        counts = np.bincount(part.indices, minlength=part.n_cols)
        assert abs(np.corrcoef(np.argsort(np.argsort(-counts)), np.arange(part.n_cols))[0, 1]) < 0.1


def test_same_seed_gives_the_same_bits_and_another_seed_others():
    first, again, other = (arrays(make_xmc(300, 200, 50, nnz_per_row=9, random_state=seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[1], other[1])


def test_rows_of_many_chunks_fit_together(monkeypatch):
    monkeypatch.setattr(synthetic, "CHUNK_ROWS", 128)
    chunked = make_xmc(1000, 500, 200, nnz_per_row=20, labels_per_row=3)
    assert (chunked.n_rows, chunked.Y.n_rows) == (1000, 1000)
    norms = np.sqrt(np.add.reduceat(chunked.X.data.astype(np.float64) ** 2, chunked.X.indptr[:-1]))
    np.testing.assert_allclose(norms, 1, atol=1e-5)
    assert not np.array_equal(chunked.X.row(0)[0], chunked.X.row(128)[0])


def test_nearest_centroid_finds_the_planted_labels(dataset):
    train, test = split_rows(dataset)
    X, Y, X_test, Y_test = (part.to_scipy() for part in (train.X, train.Y, test.X, test.Y))
    counts = np.asarray(Y.sum(axis=0)).ravel()
    centroids = (Y.T @ X).toarray()
    centroids *= (np.log1p(counts) / np.maximum(np.linalg.norm(centroids, axis=1), 1e-9))[:, None]
    best = np.argmax(X_test @ centroids.T, axis=1)
    truth = Y_test.toarray()
    floor = truth[:, np.argmax(counts)].mean()
    assert truth[np.arange(test.n_rows), best].mean() > 0.75
    assert floor < 0.5


def test_pure_noise_cannot_be_learned():
    train, test = split_rows(make_xmc(3000, 500, 20, nnz_per_row=10, labels_per_row=1, noise=1, label_exponent=0))
    centroids = (train.Y.to_scipy().T @ train.X.to_scipy()).toarray()
    best = np.argmax(test.X.to_scipy() @ (centroids / np.linalg.norm(centroids, axis=1)[:, None]).T, axis=1)
    assert test.Y.to_scipy().toarray()[np.arange(test.n_rows), best].mean() < 0.1


def test_dense_corner_gives_all_columns_or_nearly():
    full = make_xmc(50, 4, 3, nnz_per_row=4, labels_per_row=3)
    assert full.X.nnz <= 200
    assert full.Y.nnz <= 150
    assert (np.diff(full.Y.indptr) >= 1).all()


def test_rows_have_the_shape_and_the_features_that_are_asked_for():
    wide = make_xmc(200, 135_909, 5000, nnz_per_row=76, label_exponent=0.5)
    assert wide.X.shape == (200, 135_909)
    assert wide.X.nnz / 200 == pytest.approx(76, rel=0.1)


def test_split_has_each_row_once_in_order():
    whole = make_xmc(100, 50, 10, nnz_per_row=5, labels_per_row=2)
    train, test = split_rows(whole, 0.3, random_state=5)
    assert (train.n_rows, test.n_rows) == (70, 30)
    rows = [tuple(part.X.row(i)[1]) for part in (train, test) for i in range(part.n_rows)]
    assert sorted(rows) == sorted(tuple(whole.X.row(i)[1]) for i in range(100))
    assert train.n_labels == test.n_labels == 10
    np.testing.assert_array_equal(split_rows(whole, 0.3, random_state=5)[1].X.data, test.X.data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_rows": 0}, "n_rows: must be an integer in"),
        ({"n_labels": 2.5}, "n_labels: must be an integer in"),
        ({"n_features": 1 << 31}, "n_features: must be an integer in"),
        ({"nnz_per_row": 51}, r"nnz_per_row: must be a number in \[1, 50\], got 51"),
        ({"labels_per_row": 0.5}, r"labels_per_row: must be a number in \[1, 10\], got 0.5"),
        ({"labels_per_row": float("nan")}, "labels_per_row: must be a number"),
        ({"label_exponent": -1}, "label_exponent: must be a number"),
        ({"noise": 1.5}, r"noise: must be a number in \[0, 1\], got 1.5"),
        ({"random_state": -1}, "random_state: must be an integer of at least 0"),
        ({"random_state": None}, "random_state: must be an integer of at least 0"),
    ],
)
def test_arguments_outside_their_range_are_refused(change, message):
    arguments = {"n_rows": 20, "n_features": 50, "n_labels": 10, "nnz_per_row": 5, "labels_per_row": 2}
    with pytest.raises(DataError, match=message):
        make_xmc(**{**arguments, **change})


@pytest.mark.parametrize("test_size", [0, 1, 0.001, 0.999, float("nan")])
def test_split_without_rows_on_both_sides_is_refused(test_size):
    with pytest.raises(DataError, match="test_size: must leave rows on both sides of 20"):
        split_rows(make_xmc(20, 50, 10, nnz_per_row=5, labels_per_row=2), test_size)
