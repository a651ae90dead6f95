"""Samplers of the output layer: which labels a batch trains, and that training them is training all the others out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_COMPILER
from shared.on_host import OnHost
from shared.samplers import learned, two_parts
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.base import Targets
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network, state_layout
from xmlsgd.nn.optimizers import SGD, Adam, RowRMSprop
from xmlsgd.nn.samplers import ALL_LABELS, Batch, Sampler, true_among
from xmlsgd.nn.samplers.uniform import UniformNegatives
from xmlsgd.training.job import Job

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
    return sampler.begin(Y, 0).draw(Batch(Y, rows, seed, None, None, None))


def test_all_labels_take_part_by_default(dataset):
    assert labels_of(Job(dataset, NETWORK).sampler, dataset.Y, np.arange(5), 0) is None


@pytest.mark.parametrize("negatives", [0, 1, 50])
def test_shared_negatives_hold_every_true_label_of_the_batch_and_some_more(dataset, negatives):
    rows = np.array([3, 17, 5])
    labels = labels_of(UniformNegatives(negatives), dataset.Y, rows, 1)
    true = np.unique(dataset.Y.columns_of(rows))
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


@pytest.mark.parametrize(
    ("negatives", "text"), [(-1, "negatives must be at least 0, got -1"), ("x", "must be a whole number, got 'x'")]
)
def test_negatives_that_are_no_number_or_fewer_than_none_are_refused(negatives, text):
    with pytest.raises(DataError, match=text):
        UniformNegatives(negatives)


@pytest.mark.parametrize(
    "device",
    [Reference, lambda: CPU(1, "float32"), pytest.param(lambda: OnHost(shim_device("float32")), marks=NEEDS_COMPILER)],
    ids=["reference", "cpu", "shim"],
)
@pytest.mark.parametrize("optimizer", [Adam(), RowRMSprop()], ids=["adam", "row_rmsprop"])
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
    Y = true_among(dataset.Y, np.arange(N_ROWS)[rows], active)
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
    active = np.unique(dataset.Y.columns_of(rows))
    Y = true_among(dataset.Y, rows, active)
    assert Y.shape == (3, len(active))
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(active[Y.row(place)[0]], dataset.Y.row(row)[0])


@dataclass(frozen=True)
class Drawing(Sampler):
    """Draws what a function of the batch returns."""

    drawn: Callable

    def draw(self, batch):
        return self.drawn(batch)


def step_with(sampler, dataset, rows, device):
    layers = NETWORK.layers(np.ones(NETWORK.layout.size, np.float32))
    targets = Targets(dataset.Y, rows, np.ones(len(rows), np.float32))
    with device.start():
        return NETWORK.step(device, layers, dataset.X, targets, SGD().update(0.1, 1), 0, sampler), layers


@pytest.mark.parametrize(
    ("drawn", "complaint"),
    [
        (lambda batch: np.append(batch.true(), np.int32(10**7)), "must draw ascending int32 labels in"),
        (lambda batch: np.append(np.int32(-3), batch.true()), "must draw ascending int32 labels in"),
        (lambda batch: batch.true()[::-1], "must draw ascending int32 labels in"),
        (lambda batch: np.repeat(batch.true(), 2), "must draw ascending int32 labels in"),
        (lambda batch: batch.true().astype(float), "must draw ascending int32 labels in"),
        (lambda batch: batch.true().tolist(), "must draw ascending int32 labels in"),
        (lambda batch: batch.true()[1:], "must include all true labels of the batch, but label .* is missing"),
        (lambda batch: batch.true()[:-1], "must include all true labels of the batch, but label .* is missing"),
    ],
)
def test_labels_that_a_sampler_must_not_draw_are_refused(dataset, drawn, complaint):
    """Kernels check no bounds: they would write outside of the model, or train a label as if no row had it."""
    with pytest.raises(DataError, match=complaint):
        step_with(Drawing(drawn), dataset, np.array([1, 2, 8, 9]), CPU(1, "float32"))


@pytest.mark.parametrize("device", [Reference, lambda: CPU(1, "float32")], ids=["reference", "cpu"])
def test_a_batch_without_labels_of_which_none_are_drawn_trains_nothing(dataset, device):
    Y = CSR(np.zeros(N_ROWS + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), N_LABELS)
    loss, layers = step_with(UniformNegatives(0), Dataset(dataset.X, Y), np.arange(4), device())
    assert loss == 0
    assert all((part == 1).all() for layer in layers for part in layer[:2])


@pytest.fixture(scope="module")
def parts():
    return two_parts()


def test_drawn_negatives_teach_nearly_what_all_labels_do(parts):
    assert learned(parts, UniformNegatives(100))[0] > 0.85 * learned(parts, ALL_LABELS)[0] > 0.2


def test_the_same_seed_gives_the_same_model(parts):
    """All that is drawn comes from the seed, nothing from the time."""
    first, again = (learned(parts, UniformNegatives(100), epochs=1)[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)
