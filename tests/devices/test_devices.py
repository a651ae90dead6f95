"""Every device computes what `reference.py` defines, on batches of every awkward shape."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from layers import (
    FLOAT32,
    HALF_ULP,
    assert_same_change,
    copy,
    input_batch,
    output_batch,
    random_layer,
    whole_step,
)

from xmlsgd.csr import CSR
from xmlsgd.devices import avx512, cpu_rows, get_device, kernel_cache
from xmlsgd.devices.base import Device, Dropout, Layer
from xmlsgd.devices.cpu import CPU, PREDICT_BATCH
from xmlsgd.devices.reference import Reference, kept
from xmlsgd.errors import DataError
from xmlsgd.losses import LOSSES
from xmlsgd.network import Network
from xmlsgd.optimizers import OPTIMIZERS, SGD, Adam, Optimizer
from xmlsgd.samplers import SharedNegatives

NO_DROPOUT = Dropout(0.0, 0)
# (B, H, L): one row, one label, no multiple of 32, whole blocks, fewer labels than a chunk, several chunks.
SHAPES = [(1, 24, 1), (7, 32, 5), (33, 40, 100), (64, 64, 256), (37, 24, 700), (260, 40, 515)]
ADAM = 1e-4  # 1 - beta2 is a thousandth: reassociated, (1 - beta2) g g becomes g g - beta2 g g and loses three digits


# --- the output layer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_step_is_exact_where_every_number_is_a_small_integer(device, shape):
    """Integers below 256 are exact in bfloat16 and their sums in float32: nothing may differ, not even in one bit."""
    B, H, L = shape
    A, Y, rows, _, layer = output_batch(shape)
    rng = np.random.default_rng(shape)
    A = rng.integers(0, 3, (B, H)).astype(np.float32) * (rng.random((B, H)) < 0.3)
    layer.W[:] = rng.integers(-1, 2, (L, H)) * (rng.random((L, H)) < 0.5)
    layer.b[:] = rng.integers(-2, 3, L)
    scale = rng.integers(1, 3, B).astype(np.float32)  # sample weights
    update = SGD().update(0.25, 1)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, Y, rows, scale, expected, LOSSES["squared_hinge"], update)
    assert np.abs(A @ layer.W.T + layer.b).max() * 2 * 2 < 256, "the gradient must be exact in bfloat16"
    value2, dA2 = device.output_step(A, Y, rows, scale, got, LOSSES["squared_hinge"], update)
    assert value2 == value
    np.testing.assert_array_equal(dA2, dA)
    np.testing.assert_array_equal(got.W, expected.W)
    np.testing.assert_array_equal(got.b, expected.b)


def gradient_bounds(loss, A, W, b, has, scale, half_ulp):
    """Return bounds on the errors of loss, dA, dW and db when operands of products are rounded by `half_ulp`.

    Rounding both operands changes a sum of products by at most 2 half_ulp (1 + half_ulp / 2) sum |a| |b|; what this
    does to the gradient follows from the Lipschitz constant of each loss's derivative.
    """
    A, W, weight = A.astype(np.float64), W.astype(np.float64), scale.astype(np.float64)[:, None]
    two = 2.01 * half_ulp + FLOAT32
    Z = A @ W.T + b
    eZ = two * (np.abs(A) @ np.abs(W).T + np.abs(b))
    if loss == "bce":
        G, eG, e_value = 1 / (1 + np.exp(-Z)) - has, eZ / 4, eZ.sum(axis=1) + FLOAT32 * Z.shape[1]
    elif loss == "softmax":
        p = np.exp(Z - np.logaddexp.reduce(Z, axis=1)[:, None])
        worst = eZ.max(axis=1, keepdims=True)
        labelled = has.any(axis=1, keepdims=True)
        G, eG = labelled * (p - has / np.maximum(has.sum(axis=1, keepdims=True), 1)), labelled * p * np.expm1(2 * worst)
        e_value = 2 * worst[:, 0] + FLOAT32 * np.abs(Z).max()
    else:
        sign = np.where(has, 1, -1)
        short = np.maximum(0, 1 - sign * Z)
        G, eG, e_value = -2 * sign * short, 2 * eZ, (2 * (short + eZ) * eZ).sum(axis=1)
    G, eG = np.abs(G) * weight, (eG + FLOAT32 * (np.abs(G) + 1)) * weight
    e_value = (e_value * weight[:, 0]).sum()
    e_dA = eG @ np.abs(W) + two * (G + eG) @ np.abs(W)
    e_dW = eG.T @ np.abs(A) + two * (G + eG).T @ np.abs(A)
    return e_value, e_dA, e_dW, eG.sum(axis=0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_loss_and_gradients_of_the_output_layer_are_within_the_rounding_of_products(device, shape, loss):
    A, Y, rows, scale, layer = output_batch(shape)
    update = SGD().update(1.0, 1)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, Y, rows, scale, expected, LOSSES[loss], update)
    value2, dA2 = device.output_step(A, Y, rows, scale, got, LOSSES[loss], update)
    has = Y.take(rows).to_scipy().astype(bool).toarray()
    bounds = gradient_bounds(loss, A, layer.W, layer.b, has, scale, HALF_ULP if device.bfloat16 else 0.0)
    read_off = 2.0**-23 * 4  # a gradient is read off as the difference of two float32
    for got_one, expected_one, bound, name in zip(
        (value2, dA2, got.W, got.b), (value, dA, expected.W, expected.b), bounds, ("loss", "dA", "W", "b"), strict=True
    ):
        excess = np.abs(np.subtract(got_one, expected_one, dtype=np.float64)) - bound - read_off
        assert excess.max() <= 0, name


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_loss_and_logit_gradient_are_accurate_where_bfloat16_holds_the_operands(device, shape, loss):
    """With exact operands bfloat16 rounds only the gradient of the logits, and not for the loss and the biases."""
    A, Y, rows, scale, layer = output_batch(shape)
    rng = np.random.default_rng(shape)
    A = rng.integers(0, 128, A.shape).astype(np.float32) / 64
    layer.W[:] = rng.integers(-127, 128, layer.W.shape) / np.float32(512)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, Y, rows, scale, expected, LOSSES[loss], SGD().update(1.0, 1))
    value2, dA2 = device.output_step(A, Y, rows, scale, got, LOSSES[loss], SGD().update(1.0, 1))
    assert value2 == pytest.approx(value, rel=FLOAT32)
    assert_same_change(layer, got, expected, 2 * FLOAT32, names="b")
    rounding = HALF_ULP if device.bfloat16 else FLOAT32
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=rounding * np.abs(dA).max())
    assert_same_change(layer, got, expected, rounding, names="W")


OPTIMIZER_CASES = [
    (name, loss, numbers)
    for i, name in enumerate(OPTIMIZERS)
    for loss, numbers in [
        (list(LOSSES)[i % 3], {}),
        (list(LOSSES)[(i + 1) % 3], {"weight_decay": 0.5}),
        (list(LOSSES)[(i + 2) % 3], {"clip_norm": 0.01}),
        ("bce", {"weight_decay": 0.1, "clip_norm": 0.02}),
    ]
]


@pytest.mark.parametrize(("optimizer", "loss", "numbers"), OPTIMIZER_CASES)
@pytest.mark.parametrize("shape", [(33, 40, 100), (37, 24, 700)], ids=str)
def test_output_step_updates_parameters_and_state_like_the_reference(output_device, optimizer, loss, numbers, shape):
    rule = OPTIMIZERS[optimizer](**numbers)
    A, Y, rows, scale, layer = output_batch(shape, optimizer=rule)
    # Operands that bfloat16 holds, in the first step: only the rounding of the gradient is left to tolerate.
    A[:] = np.round(A * 32) / 32
    layer.W[:] = np.round(layer.W * 64) / 64
    expected, got = copy(layer), copy(layer)
    for steps in (3,) if output_device.bfloat16 else (3, 4):
        update = rule.update(0.1, steps)
        Reference().output_step(A, Y, rows, scale, expected, LOSSES[loss], update)
        output_device.output_step(A, Y, rows, scale, got, LOSSES[loss], update)
    assert_same_change(layer, got, expected, 4 * HALF_ULP if output_device.bfloat16 else 10 * FLOAT32)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_batch_without_any_label_is_all_negative_or_skipped(output_device, loss):
    A, _, rows, scale, layer = output_batch((33, 40, 100))
    Y = CSR(np.zeros(40, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 100)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, Y, rows, scale, expected, LOSSES[loss], SGD().update(0.1, 1))
    value2, dA2 = output_device.output_step(A, Y, rows, scale, got, LOSSES[loss], SGD().update(0.1, 1))
    tolerance = 4 * HALF_ULP if output_device.bfloat16 else FLOAT32
    assert value2 == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=tolerance * np.abs(dA).max())
    if loss == "softmax":
        assert value2 == 0
        np.testing.assert_array_equal(got.W, layer.W)


def test_softmax_stands_logits_of_ten_thousand(output_device):
    """Weights of 1e4 on a single active unit: exp overflows unless the largest logit is taken off first."""
    B, H, L = 4, 32, 70
    A = np.zeros((B, H), np.float32)
    A[:, 0] = 1
    Y = CSR(np.arange(B + 1), np.array([0, 1, 2, 69], np.int32), np.ones(B, np.float32), L)
    rng = np.random.default_rng(0)
    layer = random_layer(rng, (L, H), L)
    layer.W[:], layer.b[:] = 0, 0
    layer.W[:, 0] = np.where(np.arange(L) % 2, 9984, -9984)  # bfloat16 holds both
    layer.W[1, 0] = 10048
    scale, rows = np.full(B, 1 / B, np.float32), np.arange(B)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, Y, rows, scale, expected, LOSSES["softmax"], SGD().update(1.0, 1))
    value2, dA2 = output_device.output_step(A, Y, rows, scale, got, LOSSES["softmax"], SGD().update(1.0, 1))
    assert value == pytest.approx((20032 + 0 + 20032 + 64) / 4)
    assert value2 == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(dA2, dA, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(got.b, expected.b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_row_of_weight_zero_changes_nothing(output_device, loss):
    A, Y, rows, scale, layer = output_batch((8, 32, 50))
    scale[3:] = 0
    all_rows, three = copy(layer), copy(layer)
    value, dA = output_device.output_step(A, Y, rows, scale, all_rows, LOSSES[loss], SGD().update(0.1, 1))
    value3, dA3 = output_device.output_step(A[:3], Y, rows[:3], scale[:3], three, LOSSES[loss], SGD().update(0.1, 1))
    assert value == pytest.approx(value3, rel=1e-6)
    np.testing.assert_array_equal(dA[3:], 0)
    np.testing.assert_allclose(dA[:3], dA3, rtol=0, atol=1e-6)
    assert_same_change(layer, all_rows, three, 1e-5)


def test_a_smaller_batch_after_a_larger_one_sees_nothing_of_it(make_device):
    """Buffers are kept between calls; what an earlier batch left in them must not count."""
    device, fresh = make_device(), make_device()
    update = SGD().update(0.1, 1)
    A, Y, rows, scale, layer = output_batch((64, 64, 700))
    device.output_step(A, Y, rows, scale, layer, LOSSES["bce"], update)
    A, Y, rows, scale, layer = output_batch((37, 64, 700))
    used, unused = copy(layer), copy(layer)
    value, dA = device.output_step(A, Y, rows, scale, used, LOSSES["bce"], update)
    value2, dA2 = fresh.output_step(A, Y, rows, scale, unused, LOSSES["bce"], update)
    assert value == value2
    np.testing.assert_array_equal(dA, dA2)
    np.testing.assert_array_equal(used.W, unused.W)


# --- the other layers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [NO_DROPOUT, Dropout(0.3, 7), Dropout(0.9, 2**31 + 5)], ids=str)
@pytest.mark.parametrize(("B", "H"), [(1, 24), (33, 40), (64, 64)])
def test_input_forward_is_that_of_the_reference(device, B, H, dropout):
    X, rows, layer, _ = input_batch(B, H)
    np.testing.assert_allclose(
        device.input_forward(X, rows, layer, dropout),
        Reference().input_forward(X, rows, layer, dropout),
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_row_without_features_gets_the_biases(device):
    X, _, layer, _ = input_batch()
    A = device.input_forward(X, np.array([0]), layer, NO_DROPOUT)
    np.testing.assert_array_equal(A[0], np.maximum(layer.b, 0))


@pytest.mark.parametrize("dropout", [NO_DROPOUT, Dropout(0.3, 7)], ids=str)
@pytest.mark.parametrize("numbers", [{}, {"weight_decay": 0.5}, {"clip_norm": 0.1}], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_input_step_updates_parameters_and_state_like_the_reference(device, optimizer, numbers, dropout):
    rule = OPTIMIZERS[optimizer](**numbers)
    X, rows, layer, dZ = input_batch(optimizer=rule)
    expected, got = copy(layer), copy(layer)
    for steps in (1, 2):
        Reference().input_step(X, rows, dZ, expected, rule.update(0.1, steps), dropout)
        device.input_step(X, rows, dZ, got, rule.update(0.1, steps), dropout)
    assert_same_change(layer, got, expected, ADAM if optimizer == "adam" else 1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_of_features_that_the_batch_lacks_are_not_touched(device, optimizer):
    rule = OPTIMIZERS[optimizer](weight_decay=0.5)
    X, rows, layer, dZ = input_batch(B=4, optimizer=rule)
    got = copy(layer)
    device.input_step(X, rows, dZ, got, rule.update(0.1, 1), NO_DROPOUT)
    present = np.zeros(X.n_cols, bool)
    present[X.take(rows).indices] = True
    assert 0 < present.sum() < X.n_cols
    for name in ("W", "Ws", "Wt"):
        old, new = getattr(layer, name), getattr(got, name)
        if len(old) == X.n_cols:
            np.testing.assert_array_equal(new[~present], old[~present], err_msg=name)
    assert np.all(np.any(got.W[present] != layer.W[present], axis=1))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("numbers", [{}, {"weight_decay": 0.5, "clip_norm": 0.1}], ids=str)
def test_dense_layers_are_those_of_the_reference(device, optimizer, numbers):
    rule = OPTIMIZERS[optimizer](**numbers)
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
    A, Y, _, scale, output = output_batch((33, 40, 60))
    expected = copy(layer), copy(output)
    A0 = device.input_forward(X, rows, layer, NO_DROPOUT)
    device.input_step(X, rows, dZ, expected[0], SGD().update(0.1, 1), NO_DROPOUT)
    device.output_step(A, Y, rows, scale, expected[1], LOSSES["bce"], SGD().update(0.1, 1))
    for part in (X, Y):
        for array in (part.indptr, part.indices, part.data):
            array.flags.writeable = False
    got = copy(layer), copy(output)
    np.testing.assert_array_equal(device.input_forward(X, rows, layer, NO_DROPOUT), A0)
    device.input_step(X, rows, dZ, got[0], SGD().update(0.1, 1), NO_DROPOUT)
    device.output_step(A, Y, rows, scale, got[1], LOSSES["bce"], SGD().update(0.1, 1))
    np.testing.assert_array_equal(got[0].W, expected[0].W)
    np.testing.assert_array_equal(got[1].W, expected[1].W)


# --- dropout -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [Dropout(0.5, 0), Dropout(0.1, 123456789), Dropout(0.99, 2**32 - 1)], ids=str)
def test_masks_are_those_of_the_reference_bit_for_bit(device, dropout):
    A = np.random.default_rng(0).uniform(0.5, 1, (57, 33)).astype(np.float32)
    expected, got = A.copy(), A.copy()
    Reference().drop(expected, dropout)
    device.drop(got, dropout)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got > 0, kept(dropout, np.arange(A.size)).reshape(A.shape))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_is_the_one_asked_for(share):
    mask = kept(Dropout(share, 5), np.arange(100_000))
    assert 1 - mask.mean() == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / 100_000))


def test_masks_of_two_seeds_are_independent():
    a, b = (kept(Dropout(0.5, seed), np.arange(100_000)) for seed in (1, 2))
    assert np.mean(a == b) == pytest.approx(0.5, abs=0.01)


def test_dropout_keeps_the_expected_activation(device):
    A = np.ones((500, 64), np.float32)
    device.drop(A, Dropout(0.25, 3))
    assert set(np.unique(A)) == {np.float32(0), np.float32(1 / 0.75)}
    assert A.mean() == pytest.approx(1, abs=0.02)


# --- top-k -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "H", "L", "k"),
    [(1, 24, 1, 1), (7, 32, 5, 5), (33, 40, 100, 3), (PREDICT_BATCH + 9, 24, 700, 5), (40, 64, 300, 40)],
)
def test_top_k_is_a_full_sort(device, n, H, L, k):
    A, _, _, _, layer = output_batch((n, H, L))
    labels, scores = device.top_k(A, layer, k)
    expected_labels, expected_scores = Reference().top_k(A, layer, k)
    assert labels.dtype == np.int32
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
    # Two labels may change places where their logits differ by less than float32 sums do.
    Z = A.astype(np.float64) @ layer.W.T + layer.b
    np.testing.assert_allclose(np.take_along_axis(Z, labels, axis=1), expected_scores, rtol=1e-5, atol=1e-5)
    assert np.mean(labels == expected_labels) > 0.99
    assert all(len(set(row)) == k for row in labels)


@pytest.mark.parametrize("k", [1, 5, 40])
def test_ties_go_to_the_smaller_label(device, k):
    n, H, L = 35, 32, 600
    rng = np.random.default_rng(k)
    A = rng.integers(0, 2, (n, H)).astype(np.float32)
    layer = random_layer(rng, (L, H), L)
    layer.W[:] = 0
    layer.W[:, :3] = rng.integers(-1, 2, (L, 3))
    layer.b[:] = rng.integers(0, 2, L)
    labels, scores = device.top_k(A, layer, k)
    expected_labels, expected_scores = Reference().top_k(A, layer, k)
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(labels, expected_labels)


def test_places_beyond_the_last_label_hold_minus_one_and_minus_infinity(device):
    A, _, _, _, layer = output_batch((33, 40, 6))
    labels, scores = device.top_k(A, layer, 9)
    np.testing.assert_array_equal(labels[:, 6:], -1)
    np.testing.assert_array_equal(scores[:, 6:], -np.inf)
    np.testing.assert_array_equal(np.sort(labels[:, :6], axis=1), np.tile(np.arange(6), (33, 1)))
    assert np.all(np.diff(scores[:, :6], axis=1) <= 0)


def test_scores_do_not_depend_on_the_rows_around(device):
    A, _, _, _, layer = output_batch((70, 40, 300))
    labels, scores = device.top_k(A, layer, 5)
    alone = [device.top_k(A[i : i + 1], layer, 5) for i in (0, 31, 69)]
    for i, (label, score) in zip((0, 31, 69), alone, strict=True):
        np.testing.assert_array_equal(label[0], labels[i])
        np.testing.assert_allclose(score[0], scores[i], rtol=1e-6)


# --- whole steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [(24,), (40, 32)], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("loss", LOSSES)
def test_steps_of_a_network_are_those_of_the_reference(device, hidden, dropout, loss):
    network = Network(60, 100, hidden, loss, input_dropout=dropout / 2, hidden_dropout=dropout)
    n_steps = 1 if device.bfloat16 else 3  # rounding of later steps can turn a relu on or off
    _, start = whole_step(Reference(), network, SGD(), n_steps=0)
    value, expected = whole_step(Reference(), network, SGD(), n_steps=n_steps)
    value2, got = whole_step(device, network, SGD(), n_steps=n_steps)
    tolerance = 4 * HALF_ULP if device.bfloat16 else FLOAT32
    assert value2 == pytest.approx(value, rel=tolerance)
    for name, change in network.layout.views(expected - start).items():
        other = network.layout.views(got - start)[name]
        np.testing.assert_allclose(other, change, rtol=0, atol=tolerance * np.abs(change).max() + 1e-6, err_msg=name)


@pytest.mark.parametrize("optimizer", [SGD(), Adam()], ids=["sgd", "adam"])
def test_the_same_seed_gives_the_same_bits(device, optimizer: Optimizer):
    """Threads own fixed shares of the labels and their sums are added in thread order."""
    network = Network(60, 700, (40,), "bce", input_dropout=0.1, hidden_dropout=0.3)
    first, second = (whole_step(device, network, optimizer, n_steps=4) for _ in range(2))
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])


def poison_with(name, value):
    def poison(X, views):
        if name == "X":
            X.data[:] = value
        elif name == "W0":
            views["W0"][:, 3] = value
        elif name == "W1":
            views["W1"][97, 5] = value
        else:
            views[name][2] = value

    return poison


@pytest.mark.parametrize("name", ["X", "W0", "b0", "W1", "b1"])
@pytest.mark.parametrize("loss", LOSSES)
def test_nan_anywhere_makes_the_loss_nan(device, loss, name):
    """A run that diverges is recognised by its loss alone."""
    network = Network(60, 100, (24,), loss)
    for one in (Reference(), device):
        with np.errstate(invalid="ignore"):
            value, _ = whole_step(one, network, SGD(), poison=poison_with(name, np.nan))
        assert not np.isfinite(value)


def gradient_kernels():
    """Return the kernels of binary cross-entropy that this processor can run."""
    vectors = pytest.param(
        cpu_rows.bce_gradient, marks=pytest.mark.skipif(not avx512.HAS_AVX512, reason="the processor lacks AVX-512")
    )
    return [cpu_rows.bce_gradient_loops, vectors]


@pytest.mark.parametrize("kernel", gradient_kernels(), ids=["loops", "vectors"])
def test_the_gradient_of_cross_entropy_holds_for_logits_of_any_size(kernel):
    z = np.concatenate([np.linspace(-20, 20, 58), [0, -88, 88, 1e4, -1e4, -3e38]]).astype(np.float32)
    scale = np.linspace(0, 2, z.size).astype(np.float32)
    bias = np.float32(0.5)
    x = z.astype(np.float64) + bias
    share = 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    got = z.copy()
    value, total = kernel(got, bias, scale)
    np.testing.assert_allclose(got, scale * share, rtol=1e-5, atol=1e-30)
    assert value == pytest.approx(float(scale @ np.logaddexp(0, x)), rel=1e-5)
    assert total == pytest.approx(float(scale @ share), rel=1e-5)


def test_precision_is_checked_when_a_device_is_made():
    with pytest.raises(DataError, match="precision must be one of auto, float32, bfloat16, got 'half'"):
        CPU(1, "half")


def test_the_reference_offers_what_the_protocol_asks_for():
    operations = {name for name in vars(Device) if not name.startswith("_")}
    assert operations <= set(dir(Reference())) & set(dir(CPU))
    with Reference().start() as nothing:
        assert nothing is None


# --- compiling ahead ---------------------------------------------------------------------------------------------


def compiled_signatures():
    return {
        (form.py_func.__qualname__, signature)
        for kernel in kernel_cache.kernels()
        for form in (kernel.alone, kernel.threaded)
        for signature in form.signatures
    }


def test_nothing_compiles_after_warming_up(cpu):
    """Every loss, optimizer, depth and dropout; drawn labels; memory maps, whose arrays are read-only; prediction."""
    for rounding in (False, True):
        cpu.warm_up(list(LOSSES.values()), rounding=rounding)
    before = compiled_signatures()
    for loss in LOSSES:
        for name in OPTIMIZERS:
            for hidden, share in (((24,), 0.0), ((40, 32), 0.3)):
                network = Network(60, 200, hidden, loss, input_dropout=share, hidden_dropout=share)
                rounded = replace(network, gradient_rounding=0.5)
                whole_step(cpu, network, OPTIMIZERS[name]())
                whole_step(cpu, rounded, OPTIMIZERS[name]())
                whole_step(cpu, rounded, OPTIMIZERS[name](), sampler=SharedNegatives(4))
    X, rows, layer, _ = input_batch()
    for array in (*layer, X.indptr, X.indices, X.data):
        array.flags.writeable = False
    A = cpu.input_forward(X, rows, layer, Dropout(0, 0))
    output = random_layer(np.random.default_rng(0), (50, 40), 50)
    for array in output:
        array.flags.writeable = False
    cpu.top_k(A, output, 5)
    assert compiled_signatures() == before


def test_warming_up_compiles_only_what_the_settings_need():
    source = (
        "from xmlsgd.devices import cpu_input, cpu_output, cpu_rounded\n"
        "from xmlsgd.devices.cpu import CPU\n"
        "steps = cpu_output.output_step_float32, cpu_rounded.rounded_step_float32\n"
        "others = cpu_input.drop, cpu_output.rows_update, cpu_output.log_sums_float32, cpu_input.input_update\n"
        "for rounding in (False, True):\n"
        "    CPU(1, 'float32').warm_up([0], deep=False, dropout=False, rounding=rounding)\n"
        "    print(*[len(kernel.alone.signatures) for kernel in (*steps, *others)])\n"
    )
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["1 0 0 0 0 1", "1 1 0 0 0 1"]


# --- by name -----------------------------------------------------------------------------------------------------


def test_a_device_is_found_by_the_name_of_its_module():
    assert get_device("cpu") is CPU
    assert get_device("reference") is Reference


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("abacus", "device must be one of cpu, cuda, reference, got 'abacus'"),
        ("bf16", "device must be one of cpu, cuda, reference, got 'bf16'"),
        ("cpu:0", "device must be one of cpu, cuda, reference, got 'cpu:0'"),
        ("cuda:x", "device must be one of cpu, cuda, reference, got 'cuda:x'"),
    ],
)
def test_an_unknown_device_is_answered_with_those_there_are(name, complaint):
    with pytest.raises(DataError) as error:
        get_device(name)
    assert str(error.value) == complaint


@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_the_best_labels_of_a_few_rows_are_those_that_they_have_among_many(precision):
    rng = np.random.default_rng(0)
    A, W, b = (rng.normal(size=size).astype(np.float32) for size in ((300, 48), (700, 48), 700))
    layer, device = Layer(W, b, *np.zeros((4, 1, 1), np.float32)), CPU(1, precision)
    with device.start():
        labels, scores = device.top_k(A, layer, 4)
        for n in (1, 2, 31, 33, 257):
            found, found_scores = device.top_k(A[:n], layer, 4)
            np.testing.assert_array_equal(found, labels[:n])
            np.testing.assert_allclose(found_scores, scores[:n], rtol=1e-5, atol=1e-5)
