"""Few frequent features, by which neighbors cannot tell rows apart: the network alone, or a warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.data.csr import CSR
from xmlsgd.estimators.defaults import frequent_share
from xmlsgd.metrics import precision_at_k


@pytest.fixture(scope="module", autouse=True)
def few_folds() -> None:
    """Have as many folds as users have."""


def dense_rows(n: int, n_words: int = 0) -> tuple[sp.csr_array, sp.csr_array]:
    """Return rows around 100 centers in 24 dimensions, of 3 labels each, beside a few words that say nothing."""
    rng = np.random.default_rng(0)
    centers, labels = rng.normal(size=(100, 24)), np.argsort(rng.random((100, 300)), axis=1)[:, :3]
    which = rng.integers(0, 100, n)
    X = centers[which] + 0.5 * rng.normal(size=(n, 24))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    words = 0.3 * np.eye(max(n_words, 1))[rng.integers(0, max(n_words, 1), n)] * (n_words > 0)
    Y = sp.csr_array((np.ones(3 * n), labels[which].ravel(), 3 * np.arange(n + 1)), shape=(n, 300))
    return sp.csr_array(np.hstack([X, words]).astype(np.float32)), Y


def test_the_share_of_frequent_features_is_that_of_their_squares():
    X = sp.csr_array(np.float32([[3, 0, 4], [3, 4, 0], [3, 0, 0], [3, 0, 0]]))
    assert frequent_share(CSR.from_scipy(X)) == pytest.approx(36 / (36 + 32))
    assert frequent_share(CSR.from_scipy(sp.csr_array((3, 2), dtype=np.float32))) == 0
    data = make_xmc(3000, 500, 300, nnz_per_row=8, labels_per_row=2, random_state=0)
    assert frequent_share(data.X) < 0.5


@pytest.mark.parametrize("n_words", [0, 20])
def test_rows_of_few_frequent_features_are_left_to_the_network(n_words):
    X, Y = dense_rows(2500, n_words)
    model = XMLClassifier((32,), n_jobs=1, random_state=0).fit(X[:2100], Y[:2100])
    told = model.plan_.to_dict()["candidates"]
    assert told["value"] == 0
    assert "% of X lies in frequent features without landmarks" in told["reason"]
    assert precision_at_k(CSR.from_scipy(Y[2100:], "Y"), model.predict_topk(X[2100:])[0], 1)[0] > 0.9


def test_candidates_that_rank_worse_than_the_network_alone_are_told():
    X, Y = dense_rows(2100)
    with pytest.warns(
        UserWarning, match=r"candidates: P@5 of 630 held-out rows is .* by the network alone; pass candidates=0"
    ):
        XMLClassifier((32,), candidates=16, max_epochs=12, n_jobs=1, random_state=0).fit(X, Y)
    data = make_xmc(3000, 500, 300, nnz_per_row=8, labels_per_row=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        XMLClassifier((32,), candidates=16, n_jobs=1, random_state=0).fit(data.X, data.Y)


def test_a_feature_of_every_row_is_frequent_however_many_rows_there_are():
    X = CSR(np.arange(25_001), np.zeros(25_000, np.int32), np.ones(25_000, np.float32), 3)
    assert frequent_share(X) == 1
