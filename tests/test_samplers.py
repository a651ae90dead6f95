"""Samplers of the output layer: which labels a batch trains, and that training them is training all the others out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from shim import NEEDS_COMPILER, OnHost, shim_device

from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.csr import CSR, Dataset
from xmlsgd.datasets import make_xmc
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.engine import train
from xmlsgd.errors import DataError
from xmlsgd.estimators.scoring import Scorer
from xmlsgd.executors.serial import Serial
from xmlsgd.metrics import precision_at_k
from xmlsgd.network import Network, state_layout
from xmlsgd.optimizers import Adam, RowAdagrad
from xmlsgd.samplers import Sampler, SharedNegatives

N_ROWS, N_FEATURES, N_LABELS = 40, 30, 400
NETWORK = Network(N_FEATURES, N_LABELS, (8,))


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    X = sp.random_array((N_ROWS, N_FEATURES), density=0.2, rng=rng, dtype=np.float32)
    Y = sp.random_array((N_ROWS, N_LABELS), density=0.01, rng=rng, dtype=np.float32)
    Y.data[:] = 1
    return Dataset(CSR.from_scipy(X), CSR.from_scipy(Y))


def test_all_labels_take_part_by_default(dataset):
    assert Sampler().labels(dataset.Y, np.arange(5), (0,)) is None


@pytest.mark.parametrize("negatives", [0, 1, 50])
def test_shared_negatives_hold_every_true_label_of_the_batch_and_some_more(dataset, negatives):
    rows = np.array([3, 17, 5])
    labels = SharedNegatives(negatives).labels(dataset.Y, rows, (0, 1))
    true = np.unique(dataset.Y.row_entries(rows))
    assert set(true) <= set(labels)
    assert np.all(np.diff(labels) > 0)
    assert labels.dtype == np.int32
    assert len(true) <= len(labels) <= len(true) + negatives
    assert labels.max() < N_LABELS


def test_the_same_batch_draws_the_same_labels_and_another_draws_others(dataset):
    rows, sampler = np.arange(4), SharedNegatives(50)
    first, again, other = (sampler.labels(dataset.Y, rows, seed) for seed in ((0, 1), (0, 1), (0, 2)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_where_nearly_all_labels_would_take_part_all_do(dataset):
    assert SharedNegatives(10_000).labels(dataset.Y, np.arange(4), (0,)) is None


def test_negatives_are_not_fewer_than_none():
    with pytest.raises(DataError, match="negatives must be at least 0, got -1"):
        SharedNegatives(-1)


@pytest.mark.parametrize(
    "device",
    [
        Reference,
        lambda: CPU(1, "float32"),
        pytest.param(lambda: OnHost(shim_device("float32")), marks=NEEDS_COMPILER),
    ],
    ids=["reference", "cpu", "shim"],
)
@pytest.mark.parametrize("optimizer", [Adam(), RowAdagrad()], ids=["adam", "row_adagrad"])
def test_a_step_on_some_labels_is_the_step_of_a_network_that_has_only_these(dataset, device, optimizer):
    made, rows = device(), np.array([1, 2, 8, 9])
    active = SharedNegatives(20).labels(dataset.Y, rows, (0,))
    few = Network(N_FEATURES, len(active), (8,))
    rng = np.random.default_rng(1)
    whole = rng.standard_normal(NETWORK.layout.size).astype(np.float32)
    states = state_layout(NETWORK.layout, optimizer)
    state = np.abs(rng.standard_normal(states.size)).astype(np.float32)
    layers = NETWORK.layers(whole, states.views(state))
    before = [part.copy() for part in layers[-1]]
    small = [layers[0]._replace(**{name: part.copy() for name, part in layers[0]._asdict().items()})]
    small.append(made.take(layers[-1], active))
    scale, update = np.full(4, 0.25, np.float32), optimizer.update(0.1, 3)
    Y = dataset.Y.columns(np.arange(N_ROWS)[rows], active)
    with made.start():
        X = dataset.X.take(rows)
        expected = few.step(made, small, X, Y, np.arange(4), scale, update, 0)
        loss = NETWORK.step(made, layers, dataset.X, dataset.Y, rows, scale, update, 0, active)
    assert loss == pytest.approx(expected, rel=1e-6)
    others = np.setdiff1d(np.arange(N_LABELS), active)
    for new, old, part in zip(layers[-1], before, small[-1], strict=True):
        if len(new) == N_LABELS:
            np.testing.assert_allclose(new[active], part, rtol=1e-6, atol=1e-7)
            np.testing.assert_array_equal(new[others], old[others])
    for new, part in zip(layers[0], small[0], strict=True):
        np.testing.assert_allclose(new, part, rtol=1e-5, atol=1e-6)


def test_slots_that_an_optimizer_does_not_have_are_left_alone():
    layer = NETWORK.layers(np.zeros(NETWORK.layout.size, np.float32))[-1]
    device = Reference()
    part = device.take(layer, np.array([3, 5], np.int32))
    part.W[:] = 1
    device.put(part, layer, np.array([3, 5]))
    assert part.Ws is layer.Ws
    np.testing.assert_array_equal(np.flatnonzero(layer.W.any(axis=1)), [3, 5])


def test_columns_numbers_labels_by_their_place(dataset):
    rows = np.array([7, 0, 7])
    active = np.unique(dataset.Y.row_entries(rows))
    Y = dataset.Y.columns(rows, active)
    assert Y.shape == (3, len(active))
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(active[Y.row(place)[0]], dataset.Y.row(row)[0])


def test_shared_negatives_learn_nearly_what_all_labels_learn():
    data = make_xmc(2500, 300, 400, nnz_per_row=15, labels_per_row=2, random_state=0)
    train_rows, test_rows = (Dataset(data.X.take(r), data.Y.take(r)) for r in (np.arange(2000), np.arange(2000, 2500)))
    network, device = Network(300, 400, (32,)), CPU(1)
    found = []
    with device.start():
        for sampler in (Sampler(), SharedNegatives(100)):
            run = train(train_rows, network, Sequential(32, 0.01), Serial([device]), epochs=6, sampler=sampler)
            labels, _ = Scorer(network, run.params, device).top_k(test_rows.X, 1)
            found.append(precision_at_k(test_rows.Y, labels, 1)[0])
    assert found[1] > 0.9 * found[0] > 0.2
