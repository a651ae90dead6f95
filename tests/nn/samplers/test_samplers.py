"""Samplers of the output layer: which labels a batch trains, and that training them is training all the others out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_COMPILER
from shared.on_host import OnHost
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data import make_xmc
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.base import Targets
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.estimators.inference import Scorer
from xmlsgd.metrics import precision_at_k
from xmlsgd.nn.network import Network, state_layout
from xmlsgd.nn.optimizers import SGD, Adam, RowAdagrad
from xmlsgd.nn.samplers import ALL_LABELS, Batch, Drawn
from xmlsgd.nn.samplers.base import Refresh, Turns
from xmlsgd.nn.samplers.frequency import FrequencyNegatives
from xmlsgd.nn.samplers.hard import HardNegatives, balanced_clusters
from xmlsgd.nn.samplers.lsh import LSH
from xmlsgd.nn.samplers.uniform import UniformNegatives
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.learner import Job
from xmlsgd.training.loop import train

N_ROWS, N_FEATURES, N_LABELS = 40, 30, 400
NETWORK = Network(N_FEATURES, N_LABELS, (8,))


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    X = sp.random_array((N_ROWS, N_FEATURES), density=0.2, rng=rng, dtype=np.float32)
    Y = sp.random_array((N_ROWS, N_LABELS), density=0.01, rng=rng, dtype=np.float32)
    Y.data[:] = 1
    return Dataset(CSR.from_scipy(X), CSR.from_scipy(Y))


def labels_of(sampler, Y, rows, seed):
    """The labels of a sampler that does not look at the model."""
    drawn = sampler.begin(Y, 0).draw(Batch(Y, rows, seed, None, None, None))
    return None if drawn is None else drawn.labels


def test_all_labels_take_part_by_default(dataset):
    assert labels_of(Job(dataset, NETWORK).sampler, dataset.Y, np.arange(5), 0) is None


@pytest.mark.parametrize("negatives", [0, 1, 50])
def test_shared_negatives_hold_every_true_label_of_the_batch_and_some_more(dataset, negatives):
    rows = np.array([3, 17, 5])
    labels = labels_of(UniformNegatives(negatives), dataset.Y, rows, 1)
    true = np.unique(dataset.Y.row_entries(rows))
    assert set(true) <= set(labels)
    assert np.all(np.diff(labels) > 0)
    assert labels.dtype == np.int32
    assert len(true) <= len(labels) <= len(true) + negatives
    assert labels.max() < N_LABELS


def test_the_same_batch_draws_the_same_labels_and_another_draws_others(dataset):
    rows, sampler = np.arange(4), UniformNegatives(50)
    first, again, other = (labels_of(sampler, dataset.Y, rows, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_where_nearly_all_labels_would_take_part_all_do(dataset):
    """It is the dense output layer then."""
    assert labels_of(UniformNegatives(10_000), dataset.Y, np.arange(4), 0) is None


def test_negatives_are_not_fewer_than_none():
    with pytest.raises(DataError, match="negatives must be at least 0, got -1"):
        UniformNegatives(-1)


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
    active = labels_of(UniformNegatives(20), dataset.Y, rows, (0,))
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
        expected = few.step(made, small, X, Targets(Y, np.arange(4), scale), update, 0)
        targets = Targets(dataset.Y, rows, scale)
        loss = NETWORK.step(made, layers, dataset.X, targets, update, 0, UniformNegatives(20))
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


def gradient(network, dataset, rows, sampler, seed, device):
    """The gradient of a batch: what a step of plain SGD at a rate of 1 takes off the parameters."""
    rng = np.random.default_rng(1)
    flat = 0.3 * rng.standard_normal(network.layout.size).astype(np.float32)
    before, layers = flat.copy(), network.layers(flat)
    scale = np.full(len(rows), 0.25, np.float32)
    with device.start():
        network.step(device, layers, dataset.X, Targets(dataset.Y, rows, scale), SGD().update(1.0, 1), seed, sampler)
    return before - flat


@pytest.mark.parametrize("loss", ["bce", "squared_hinge"])
@pytest.mark.parametrize("power", [0.0, 0.75])
def test_the_mean_gradient_of_importance_sampling_is_that_of_all_labels(dataset, power, loss):
    network, rows, device = Network(N_FEATURES, N_LABELS, (8,), loss), np.arange(6), CPU(1, "float32")
    full = gradient(network, dataset, rows, ALL_LABELS, 0, device)
    sampler = FrequencyNegatives(60, power).begin(dataset.Y, 0)
    draws = np.array([gradient(network, dataset, rows, sampler, seed, device) for seed in range(400)], np.float64)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    deviations = (draws.mean(axis=0) - full)[error > 1e-7] / error[error > 1e-7]
    assert np.abs(deviations).max() < 5
    assert np.abs(deviations).mean() < 1
    assert np.linalg.norm(draws[0] - full) > 10 * np.linalg.norm(draws.mean(axis=0) - full)


def test_softmax_with_raised_logits_comes_close_to_the_gradient_of_all_labels(dataset):
    network, rows, device = Network(N_FEATURES, N_LABELS, (8,), "softmax"), np.arange(6), Reference()
    full = gradient(network, dataset, rows, ALL_LABELS, 0, device)
    draws = {
        name: np.mean([gradient(network, dataset, rows, sampler, seed, device) for seed in range(60)], axis=0)
        for name, sampler in {
            "raised": FrequencyNegatives(100, 0.0).begin(dataset.Y, 0),
            "as they are": UniformNegatives(100),
        }.items()
    }
    distance = {name: np.linalg.norm(mean - full) / np.linalg.norm(full) for name, mean in draws.items()}
    assert distance["raised"] < 0.1 < distance["as they are"]


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("negatives", [1, 60, 250, 1000])
def test_importance_sampling_draws_as_many_labels_as_asked_for(dataset, power, negatives):
    strata = FrequencyNegatives(negatives, power).begin(dataset.Y, 0).strata
    assert sum(len(labels) * chance for labels, chance in strata) == pytest.approx(min(negatives, N_LABELS))
    np.testing.assert_array_equal(np.sort(np.concatenate([labels for labels, _ in strata])), np.arange(N_LABELS))


def test_a_label_of_higher_frequency_is_drawn_more_often(dataset):
    strata = FrequencyNegatives(60, 1.0).begin(dataset.Y, 0).strata
    counts = np.bincount(dataset.Y.indices, minlength=N_LABELS)
    means = [counts[labels].mean() for labels, _ in strata]
    assert means == sorted(means, reverse=True)
    assert len({chance for _, chance in strata}) == len(strata) > 1


def test_joined_groups_are_in_order_with_the_logs_of_their_weights():
    labels, logs = Drawn(np.array([2, 7]), ((np.array([1, 9]), 4.0), (np.array([5]), 2.0))).joined()
    assert labels.tolist() == [1, 2, 5, 7, 9]
    np.testing.assert_allclose(logs, np.log([4, 1, 2, 1, 4]), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FrequencyNegatives(0), "negatives must be at least 1, got 0"),
        (lambda: FrequencyNegatives(5, 1.5), "power must be in"),
        (lambda: HardNegatives(-1), "negatives must be at least 0, got -1"),
        (lambda: HardNegatives(hard=2), "hard must be in"),
        (lambda: HardNegatives(cluster=0), "cluster must be at least 1, got 0"),
        (lambda: UniformNegatives("x"), "negatives must be a whole number, got 'x'"),
        (lambda: FrequencyNegatives(5, float("nan")), "power must be a number, got nan"),
        (lambda: HardNegatives(cluster=2.5), "cluster must be a whole number, got 2.5"),
        (lambda: HardNegatives(refresh=None), "refresh must be a Refresh such as .*, got None"),
        (lambda: Refresh("5"), "first must be a whole number, got '5'"),
        (lambda: Refresh(0), "first must be at least 1"),
        (lambda: Refresh(5, -1), "growth at least 0"),
    ],
)
def test_what_is_no_number_or_outside_its_range_is_refused(make, text):
    with pytest.raises(DataError, match=text):
        make()


def test_refreshes_come_ever_more_seldom():
    turns = Turns(Refresh(10, 0.5))
    due = [batch for batch in range(200) if turns.due()]
    gaps = np.diff(due)
    assert due[:3] == [0, 10, 10 + round(10 * np.exp(0.5))]
    np.testing.assert_allclose(gaps, 10 * np.exp(0.5 * np.arange(len(gaps))), atol=1)
    steady = Turns(Refresh(7, 0.0))
    assert [batch for batch in range(30) if steady.due()] == [0, 7, 14, 21, 28]


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


def test_hard_negatives_are_the_labels_that_the_model_gives_high_scores(dataset):
    rng = np.random.default_rng(0)
    W = np.zeros((N_LABELS, 8), np.float32)
    confused = rng.choice(N_LABELS, 40, replace=False)
    W[confused] = 1
    layer = NETWORK.layers(np.zeros(NETWORK.layout.size, np.float32))[-1]._replace(W=W)
    rows, A = np.arange(4), np.ones((4, 8), np.float32)
    sampler = HardNegatives(40, hard=1.0, cluster=4).begin(dataset.Y, 0)
    drawn = sampler.draw(Batch(dataset.Y, rows, 0, A, layer, Reference()))
    true = np.unique(dataset.Y.row_entries(rows))
    assert set(true) <= set(drawn.labels)
    assert len(drawn.labels) <= 40 + len(true)
    assert len(np.intersect1d(drawn.labels, confused)) >= 25


SAMPLERS = {
    "shared": UniformNegatives(100),
    "even": FrequencyNegatives(100, 0.0),
    "by frequency": FrequencyNegatives(100, 0.75),
    "hard": HardNegatives(100, refresh=Refresh(20)),
    "simhash": LSH(hashes=4, tables=10, per_row=4, negatives=100, refresh=Refresh(20)),
    "dwta": LSH("dwta", hashes=2, tables=10, per_row=4, negatives=100, rule="fifo", frequent=True, refresh=Refresh(20)),
}


@pytest.fixture(scope="module")
def parts():
    data = make_xmc(2500, 300, 400, nnz_per_row=15, labels_per_row=2, random_state=0)
    return [Dataset(data.X.take(r), data.Y.take(r)) for r in (np.arange(2000), np.arange(2000, 2500))]


def learned(parts, sampler, epochs=6):
    """P@1 and the model after training with a sampler."""
    network, device = Network(300, 400, (32,)), CPU(1)
    with device.start():
        run = train(Job(parts[0], network, sampler=sampler), Sequential(32, 0.01), Serial([device]), Schedule(epochs))
        labels, _ = Scorer(network, run.params, device).top_k(parts[1].X, 1)
    return precision_at_k(parts[1].Y, labels, 1)[0], run.params


@pytest.fixture(scope="module")
def of_all_labels(parts):
    return learned(parts, ALL_LABELS)[0]


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_learns_nearly_what_all_labels_learn(parts, of_all_labels, name):
    assert learned(parts, SAMPLERS[name])[0] > 0.85 * of_all_labels > 0.2


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_same_seed_gives_the_same_model(parts, name):
    """All that is drawn comes from the seed, nothing from the time."""
    first, again = (learned(parts, SAMPLERS[name], epochs=1)[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)
