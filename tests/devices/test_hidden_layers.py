"""The input layer and the dense layers of every device are those that `reference.py` defines."""

from __future__ import annotations

import numpy as np
import pytest

from shared.layers import assert_same_change, copy, input_batch, output_batch, random_layer
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.losses import find_loss
from xmlsgd.nn.optimizers import SGD, find_optimizer, optimizer_names

ADAM = 1e-4  # 1 - beta2 is a thousandth: reassociated, (1 - beta2) g g becomes g g - beta2 g g and loses three digits


@pytest.mark.parametrize(("B", "H"), [(1, 24), (33, 40), (64, 64)])
def test_input_forward_is_that_of_the_reference(device, B, H):
    X, rows, layer, _ = input_batch(B, H)
    np.testing.assert_allclose(
        device.input_forward(X, rows, layer), Reference().input_forward(X, rows, layer), rtol=1e-5, atol=1e-5
    )


def test_a_row_without_features_gets_the_biases(device):
    X, _, layer, _ = input_batch()
    A = device.input_forward(X, np.array([0]), layer)
    np.testing.assert_array_equal(A[0], np.maximum(layer.b, 0))


@pytest.mark.parametrize("numbers", [{}, {"weight_decay": 0.5}, {"clip_norm": 0.1}], ids=str)
@pytest.mark.parametrize("optimizer", optimizer_names())
def test_input_step_updates_parameters_and_state_like_the_reference(device, optimizer, numbers):
    rule = find_optimizer(optimizer)(**numbers)
    X, rows, layer, dZ = input_batch(optimizer=rule)
    expected, got = copy(layer), copy(layer)
    for steps in (1, 2):
        Reference().input_step(X, rows, dZ, expected, rule.update(0.1, steps))
        device.input_step(X, rows, dZ, got, rule.update(0.1, steps))
    assert_same_change(layer, got, expected, ADAM if optimizer == "adam" else 1e-5)


@pytest.mark.parametrize("optimizer", optimizer_names())
def test_rows_of_features_that_the_batch_lacks_are_not_touched(device, optimizer):
    rule = find_optimizer(optimizer)(weight_decay=0.5)
    X, rows, layer, dZ = input_batch(B=4, optimizer=rule)
    got = copy(layer)
    device.input_step(X, rows, dZ, got, rule.update(0.1, 1))
    present = np.zeros(X.n_cols, bool)
    present[X.take(rows).indices] = True
    assert 0 < present.sum() < X.n_cols
    for name in ("W", "Ws", "Wt"):
        old, new = getattr(layer, name), getattr(got, name)
        if len(old) == X.n_cols:
            np.testing.assert_array_equal(new[~present], old[~present], err_msg=name)
    assert np.all(np.any(got.W[present] != layer.W[present], axis=1))


@pytest.mark.parametrize("optimizer", optimizer_names())
@pytest.mark.parametrize("numbers", [{}, {"weight_decay": 0.5, "clip_norm": 0.1}], ids=str)
def test_dense_layers_are_those_of_the_reference(device, optimizer, numbers):
    rule = find_optimizer(optimizer)(**numbers)
    rng = np.random.default_rng(1)
    layer = random_layer(rng, (24, 40), 24, rule)
    A, dZ = (rng.standard_normal((33, n)).astype(np.float32) for n in (40, 24))
    expected, got = copy(layer), copy(layer)
    forward = Reference().dense_forward(A, layer)
    np.testing.assert_allclose(device.dense_forward(A, layer), forward, rtol=1e-5, atol=1e-5)
    dA = Reference().dense_step(A, dZ, expected, rule.update(0.1, 1))
    np.testing.assert_allclose(device.dense_step(A, dZ, got, rule.update(0.1, 1)), dA, rtol=1e-5, atol=1e-5)
    assert_same_change(layer, got, expected, ADAM if optimizer == "adam" else 1e-5)


def test_read_only_data_are_read_where_they_lie(device):
    """Memory maps are read-only, and Numba compiles for them anew."""
    X, rows, layer, dZ = input_batch()
    A, targets, output = output_batch((33, 40, 60))
    targets = targets._replace(rows=rows)
    expected = copy(layer), copy(output)
    A0 = device.input_forward(X, rows, layer)
    device.input_step(X, rows, dZ, expected[0], SGD().update(0.1, 1))
    device.output_step(A, targets, expected[1], find_loss("bce"), SGD().update(0.1, 1))
    for part in (X, targets.Y):
        for array in (part.indptr, part.indices, part.data):
            array.flags.writeable = False
    got = copy(layer), copy(output)
    np.testing.assert_array_equal(device.input_forward(X, rows, layer), A0)
    device.input_step(X, rows, dZ, got[0], SGD().update(0.1, 1))
    device.output_step(A, targets, got[1], find_loss("bce"), SGD().update(0.1, 1))
    np.testing.assert_array_equal(got[0].W, expected[0].W)
    np.testing.assert_array_equal(got[1].W, expected[1].W)
