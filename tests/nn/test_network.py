"""The network: its parameters, where they start, its steps and its losses worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xmlsgd.data.csr import CSR
from xmlsgd.devices.base import EXACT, Targets
from xmlsgd.devices.reference import Reference, kept
from xmlsgd.errors import DataError
from xmlsgd.nn.losses import find_loss, loss_names
from xmlsgd.nn.network import Network, state_layout
from xmlsgd.nn.optimizers import RATE, SGD, Adam, RowRMSprop

X = CSR(np.array([0, 2, 3]), np.array([0, 2, 1], np.int32), np.array([1, 2, -1], np.float32), 3)
Y = CSR(np.array([0, 1, 3]), np.array([0, 0, 2], np.int32), np.ones(3, np.float32), 4)
ROWS = np.arange(2)


def parameters(network, seed=0):
    flat = np.zeros(network.layout.size, np.float32)
    rng = np.random.default_rng(seed)
    for view in network.layout.views(flat).values():
        view[:] = rng.standard_normal(view.shape)
    return flat


def test_parameters_are_named_layer_by_layer_with_outputs_first_after_the_input_layer():
    assert Network(10, 7, (4, 3)).layout.shapes == {
        "W0": (10, 4), "b0": (4,), "W1": (3, 4), "b1": (3,), "W2": (7, 3), "b2": (7,),
    }  # fmt: skip


def test_weights_start_at_their_scales_and_the_output_layer_at_zero():
    network = Network(400, 300, (64, 32), input_scale=0.3)
    flat = np.full(network.layout.size, 9, np.float32)
    network.initialize(flat, CSR(np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 300), seed=3)
    views = network.layout.views(flat)
    assert views["W0"].std() == pytest.approx(0.3, rel=0.05)
    assert views["W1"].std() == pytest.approx(math.sqrt(2 / 64), rel=0.1)
    assert abs(views["W0"].mean()) < 0.01
    for name in ("b0", "b1", "W2"):
        np.testing.assert_array_equal(views[name], 0, err_msg=name)


def test_the_start_depends_on_the_seed_alone():
    network = Network(20, 10, (8,))
    starts = []
    for seed in (0, 0, 1):
        flat = np.zeros(network.layout.size, np.float32)
        network.initialize(flat, CSR(np.array([0, 1]), np.array([2], np.int32), np.ones(1, np.float32), 10), seed)
        starts.append(flat)
    np.testing.assert_array_equal(starts[0], starts[1])
    assert np.any(starts[0] != starts[2])


def test_output_biases_start_at_the_frequencies_of_the_labels():
    """100 rows; label 0 on 50 of them, label 1 on 5, label 2 on all, label 3 on none."""
    has = np.zeros((100, 4), np.int8)
    has[:50, 0], has[:5, 1], has[:, 2] = 1, 1, 1
    indptr = np.concatenate([[0], has.sum(axis=1).cumsum()])
    labels = CSR(indptr, np.nonzero(has)[1].astype(np.int32), np.ones(indptr[-1], np.float32), 4)
    biases = {}
    for loss in loss_names():
        network = Network(3, 4, (2,), loss)
        flat = np.zeros(network.layout.size, np.float32)
        network.initialize(flat, labels, 0)
        biases[loss] = network.layout.views(flat)["b1"]
        assert np.all(np.isfinite(biases[loss]))
    assert biases["bce"][:2] == pytest.approx([math.log(0.5 / 0.5), math.log(0.05 / 0.95)], abs=0.03)
    assert biases["bce"][2] > 4
    assert biases["bce"][3] < -8
    assert np.exp(biases["softmax"]).sum() == pytest.approx(1)
    assert np.exp(biases["softmax"])[:3] == pytest.approx([50 / 155, 5 / 155, 100 / 155], rel=0.01)


def test_output_biases_start_at_the_frequencies_among_the_weights_of_the_rows():
    """Label 0 on two rows of weight 3 and 1, label 1 on a row of weight 0 and one of 2."""
    labels = CSR(np.array([0, 1, 2, 3, 4]), np.array([0, 0, 1, 1], np.int32), np.ones(4, np.float32), 2)
    network = Network(3, 2, (2,))
    flat = np.zeros(network.layout.size, np.float32)
    network.initialize(flat, labels, 0, np.array([3, 1, 0, 2], np.float32))
    frequency = (np.array([4, 2]) / 2 + 1e-2) / 4  # in rows of mean weight, of which there are three
    np.testing.assert_allclose(network.layout.views(flat)["b1"], np.log(frequency / (1 - frequency)), rtol=1e-5)


def test_output_biases_are_finite_where_no_row_has_a_weight():
    biases = Network(3, 4).initial_biases(Y, np.zeros(Y.n_rows, np.float32))
    np.testing.assert_array_equal(biases, Network(3, 4).biases_of(np.zeros(4), 0))


def test_layers_are_views_of_the_parameters_and_of_the_state():
    network, optimizer = Network(3, 4, (2,)), Adam()
    states = state_layout(network.layout, optimizer)
    flat, state = np.zeros(network.layout.size, np.float32), np.zeros(states.size, np.float32)
    layers = network.layers(flat, states.views(state))
    for i, layer in enumerate(layers):
        for array, value in zip(layer, range(1, 7), strict=True):
            array[:] = 10 * i + value
    views, slots = network.layout.views(flat), states.views(state)
    for i in range(2):
        got = [views[f"W{i}"], views[f"b{i}"], *(slots[f"{name}{i}:{slot}"] for slot in range(2) for name in "Wb")]
        assert [set(array.ravel().tolist()) for array in got] == [{10.0 * i + value} for value in range(1, 7)]


def test_state_is_named_by_parameter_and_slot():
    layout = Network(10, 7, (4,)).layout
    assert state_layout(layout, SGD()).shapes == {}
    assert state_layout(layout, RowRMSprop()).shapes == {
        "W0:0": (10, 1), "b0:0": (4,), "W1:0": (7, 1), "b1:0": (7,),
    }  # fmt: skip
    assert list(state_layout(layout, Adam()).shapes)[:3] == ["W0:0", "W0:1", "b0:0"]


def test_hidden_activations_are_relus_of_sums():
    network = Network(3, 4, (5, 2), hidden_dropout=0.5)
    flat = parameters(network)
    v = network.layout.views(flat)
    dense = np.array([[1, 0, 2], [0, -1, 0]], np.float32)
    expected = np.maximum(np.maximum(dense @ v["W0"] + v["b0"], 0) @ v["W1"].T + v["b1"], 0)
    got = network.hidden_activations(Reference(), network.layers(flat), X, ROWS)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def loss_by_hand(loss, logits, has):
    """Return the loss of one row, label by label."""
    if loss == "bce":
        return sum(math.log(1 + math.exp(z)) - y * z for z, y in zip(logits, has, strict=True))
    total = math.log(sum(math.exp(z) for z in logits))
    return sum((total - z) / sum(has) for z, y in zip(logits, has, strict=True) if y)


@pytest.mark.parametrize("loss", loss_names())
def test_the_loss_of_a_step_is_the_weighted_sum_over_its_rows_before_the_update(loss):
    network = Network(3, 4, (5,), loss)
    flat = parameters(network)
    v = {name: view.astype(np.float64) for name, view in network.layout.views(flat).items()}
    dense = np.array([[1, 0, 2], [0, -1, 0]])
    Z = np.maximum(dense @ v["W0"] + v["b0"], 0) @ v["W1"].T + v["b1"]
    expected = 0.25 * loss_by_hand(loss, Z[0], [1, 0, 0, 0]) + 2 * loss_by_hand(loss, Z[1], [1, 0, 1, 0])
    scale = np.array([0.25, 2], np.float32)
    value = network.step(Reference(), network.layers(flat), X, Targets(Y, ROWS, scale), SGD().update(0.1, 1), seed=0)
    assert value == pytest.approx(expected, rel=1e-6)


def test_softmax_skips_a_row_without_labels():
    network = Network(3, 4, (5,), "softmax")
    flat = parameters(network)
    none = CSR(np.array([0, 1, 1]), np.array([3], np.int32), np.ones(1, np.float32), 4)
    both, one = flat.copy(), flat.copy()
    values = [
        network.step(
            Reference(),
            network.layers(f),
            X,
            Targets(none, rows, np.ones(len(rows), np.float32)),
            SGD().update(1, 1),
            0,
        )
        for f, rows in ((both, ROWS), (one, ROWS[:1]))
    ]
    assert values[0] == pytest.approx(values[1])
    np.testing.assert_allclose(both, one, atol=1e-6)


def test_masks_and_roundings_differ_between_layers_steps_and_seeds():
    class Spy(Reference):
        def __init__(self):
            self.masks, self.seeds = [], []

        def drop(self, A, dropout):
            self.masks.append(tuple(kept(dropout, np.arange(64))))
            self.seeds.append(dropout.seed)
            super().drop(A, dropout)

        def output_step(self, A, targets, layer, loss, update, rounding=EXACT):
            self.seeds.append(rounding.seed)
            return super().output_step(A, targets, layer, loss, update, rounding)

    network = Network(3, 4, (5, 5), hidden_dropout=0.5, gradient_rounding=0.1)
    spy = Spy()
    for seed in (1, 1000):
        layers = network.layers(parameters(network))
        network.step(spy, layers, X, Targets(Y, ROWS, np.ones(2, np.float32)), SGD().update(0.1, 1), seed)
    assert len(set(spy.masks)) == 4
    assert len(set(spy.seeds)) == 6


@pytest.mark.parametrize("optimizer", [SGD(), Adam()])
def test_the_rate_of_the_input_layer_grows_with_its_scale_if_the_optimizer_is_adaptive(optimizer):
    class Spy(Reference):
        def input_step(self, X, rows, dZ, layer, update):
            self.rate = float(update.hyper[RATE])

    rates = []
    for scale in (0.2, 0.4):
        network, spy = Network(3, 4, (5,), input_scale=scale), Spy()
        slots = state_layout(network.layout, optimizer)
        layers = network.layers(parameters(network), slots.views(np.zeros(slots.size, np.float32)))
        network.step(spy, layers, X, Targets(Y, ROWS, np.ones(2, np.float32)), optimizer.update(0.1, 1), seed=0)
        rates.append(spy.rate)
    assert rates[1] == pytest.approx(rates[0] * (2 if optimizer.adaptive else 1))


def test_dropout_of_zero_never_calls_for_a_mask():
    class NoDrop(Reference):
        def drop(self, A, dropout):
            raise AssertionError("a mask was asked for")

    network = Network(3, 4, (5, 2))
    flat = parameters(network)
    value = network.step(
        NoDrop(), network.layers(flat), X, Targets(Y, ROWS, np.ones(2, np.float32)), SGD().update(0.1, 1), seed=0
    )
    assert np.isfinite(value)


def test_an_unknown_loss_lists_the_losses_there_are():
    with pytest.raises(DataError, match="loss must be one of bce, softmax, got 'mse'"):
        find_loss("mse")
