"""The gradients of the reference device are the finite differences of its loss."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from xmlsgd.data.csr import CSR
from xmlsgd.devices.base import Targets
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.losses import loss_names
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD

STEP = 2.0**-8  # large against the rounding of activations to float32, small against the curvature of the losses
X = CSR(
    np.array([0, 3, 3, 5, 8]),
    np.array([0, 2, 5, 1, 2, 0, 3, 4], np.int32),
    np.array([0.5, -1, 0.7, 1.2, 0.4, -0.6, 0.9, 1.1], np.float32),
    7,
)
Y = CSR(np.array([0, 2, 3, 3, 4]), np.array([0, 3, 2, 4], np.int32), np.ones(4, np.float32), 5)  # row 2 has no label
ROWS = np.array([3, 0, 2, 1])  # row 1 has no feature
SCALE = np.array([0.1, 0.4, 0.3, 0.2], np.float32)


class Watched(Reference):
    """The reference, with an eye on how near a unit comes to the kink of its relu: |z| = relu(z) + relu(-z)."""

    nearest = np.inf

    def input_forward(self, X, rows, layer):
        A = super().input_forward(X, rows, layer)
        self.nearest = min(self.nearest, (A + super().input_forward(X, rows, negative(layer))).min())
        return A

    def dense_forward(self, A, layer):
        out = super().dense_forward(A, layer)
        self.nearest = min(self.nearest, (out + super().dense_forward(A, negative(layer))).min())
        return out


def negative(layer):
    return layer._replace(W=-layer.W, b=-layer.b)


def loss_and_step(network, flat, rate, device=None):
    """Return the loss at `flat` and the parameters after one step of plain SGD."""
    after = flat.copy()
    layers = network.layers(after)
    value = network.step(device or Reference(), layers, X, Targets(Y, ROWS, SCALE), SGD().update(rate, 1), seed=11)
    return value, after


def random_parameters(network):
    """Return parameters such that no step of a finite difference takes a unit across the kink of its relu."""
    for seed in range(1000):
        flat = np.random.default_rng(seed).uniform(-1, 1, network.layout.size).astype(np.float32)
        device = Watched()
        loss_and_step(network, flat, 0.0, device)
        if device.nearest > 4 * STEP:
            return flat
    raise AssertionError("no seed keeps all units away from the kink")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("hidden", [(4,), (4, 3)], ids=str)
@pytest.mark.parametrize("loss", loss_names())
def test_gradients_are_the_finite_differences_of_the_loss(loss, hidden, dropout):
    network = Network(7, 5, hidden, loss, hidden_dropout=dropout)
    flat = random_parameters(network)
    value, after = loss_and_step(network, flat, rate=1.0)
    gradients = network.layout.views(flat.astype(np.float64) - after)
    for name, gradient in gradients.items():
        differences = np.zeros(gradient.shape)
        for at in np.ndindex(gradient.shape):
            ends = []
            for sign in (1, -1):
                moved = flat.copy()
                network.layout.views(moved)[name][at] += sign * STEP
                ends.append(loss_and_step(network, moved, rate=0.0)[0])
            differences[at] = (ends[0] - ends[1]) / (2 * STEP)
        np.testing.assert_allclose(gradient, differences, rtol=0, atol=1e-3 * max(1, value), err_msg=name)
    assert max(np.abs(gradient).max() for gradient in gradients.values()) > 0.1


def test_a_rate_of_zero_changes_no_parameter():
    network = Network(7, 5, (4, 3))
    flat = random_parameters(network)
    np.testing.assert_array_equal(loss_and_step(network, flat, rate=0.0)[1], flat)


@pytest.mark.parametrize("loss", loss_names())
def test_small_steps_down_the_gradient_lower_the_loss(loss):
    network = Network(7, 5, (4, 3), loss)
    flat = random_parameters(network)
    values = []
    for _ in range(20):
        value, flat = loss_and_step(network, flat, rate=0.02)
        values.append(value)
    assert all(later < earlier for earlier, later in pairwise(values))
