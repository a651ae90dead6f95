"""Hard negatives: clusters of labels, which of them are hard, and what is learned from them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.samplers.hard import HardNegatives, balanced_clusters
from benchmarks.samplers.lsh import Refresh
from shared.samplers import learned, two_parts
from xmlsgd.data.csr import CSR
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.nn.samplers import ALL_LABELS, Batch

N_LABELS = 400


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: HardNegatives(-1), "negatives must be at least 0, got -1"),
        (lambda: HardNegatives(hard=2), "hard must be in"),
        (lambda: HardNegatives(cluster=0), "cluster must be at least 1, got 0"),
        (lambda: HardNegatives(cluster=2.5), "cluster must be a whole number, got 2.5"),
        (lambda: HardNegatives(refresh=None), "refresh must be a Refresh such as .*, got None"),
    ],
)
def test_what_is_no_number_or_outside_its_range_is_refused(make, text):
    with pytest.raises(DataError, match=text):
        make()


@pytest.mark.parametrize("n", [1, 3, 16, 17, 100])
def test_clusters_hold_every_row_once_and_near_ones_together(n):
    rng = np.random.default_rng(0)
    V = np.repeat(10 * rng.standard_normal((n, 4)), 2, axis=0).astype(np.float32)
    members = balanced_clusters(V, 8, rng)
    assert members.shape[1] <= 8
    np.testing.assert_array_equal(np.sort(members[members >= 0]), np.arange(2 * n))
    cluster_of = np.empty(2 * n, int)
    for c, labels in enumerate(members):
        cluster_of[labels[labels >= 0]] = c
    assert (cluster_of[::2] == cluster_of[1::2]).mean() > 0.5


def test_hard_negatives_are_the_labels_that_the_model_gives_high_scores():
    rng = np.random.default_rng(0)
    Y = sp.random_array((40, N_LABELS), density=0.01, rng=rng, dtype=np.float32)
    Y.data[:] = 1
    Y, network = CSR.from_scipy(Y), Network(30, N_LABELS, (8,))
    W = np.zeros((N_LABELS, 8), np.float32)
    confused = rng.choice(N_LABELS, 40, replace=False)
    W[confused] = 1
    layer = network.layers(np.zeros(network.layout.size, np.float32))[-1]._replace(W=W)
    rows, A = np.arange(4), np.ones((4, 8), np.float32)
    sampler = HardNegatives(40, hard=1.0, cluster=4).begin(Y, 0)
    drawn = sampler.draw(Batch(Y, rows, 0, A, layer, Reference()))
    true = np.unique(Y.columns_of(rows))
    assert set(true) <= set(drawn)
    assert len(drawn) <= 40 + len(true)
    assert len(np.intersect1d(drawn, confused)) >= 25


HARD = HardNegatives(100, refresh=Refresh(20))


@pytest.fixture(scope="module")
def parts():
    return two_parts()


def test_hard_negatives_learn_nearly_what_all_labels_learn(parts):
    assert learned(parts, HARD)[0] > 0.85 * learned(parts, ALL_LABELS)[0] > 0.2


def test_the_same_seed_gives_the_same_hard_negatives(parts):
    """All that is drawn comes from the seed, nothing from the time."""
    first, again = (learned(parts, HARD, epochs=1)[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)
