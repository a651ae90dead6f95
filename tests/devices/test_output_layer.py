"""The output layer of every device: loss, gradients, updates and state are those that `reference.py` defines."""

from __future__ import annotations

import numpy as np
import pytest

from shared.layers import FLOAT32, HALF_ULP, assert_same_change, copy, output_batch, random_layer
from shared.on_host import OnHost
from xmlsgd.data.csr import CSR
from xmlsgd.devices.base import Rounding, Targets
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cpu.device import FEW_PARTS
from xmlsgd.devices.cpu.intrinsics import avx512
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.losses import Loss, bce, find_loss, loss_names
from xmlsgd.nn.optimizers import SGD, find_optimizer, optimizer_names

pytestmark = pytest.mark.processor
# (B, H, L): one row, one label, no multiple of 32, whole blocks, fewer labels than a chunk, several chunks.
SHAPES = [(1, 24, 1), (7, 32, 5), (33, 40, 100), (64, 64, 256), (37, 24, 700), (260, 40, 515)]


def squared_error(z, target, log_sum):
    """Return the squared distance to 1 for labels of the row, to -1 for others, and its derivative."""
    error = z - (2 * target - 1)
    return error * error, 2 * error


SQUARED_ERROR = Loss(squared_error, np.zeros_like)


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_step_is_exact_where_every_number_is_a_small_integer(cpu, shape, seed):
    """Integers below 256 are exact in bfloat16 and their sums in float32: nothing may differ, not even in one bit.

    The seed decides with which chunk of labels a step begins.
    """
    B, H, L = shape
    A, targets, layer = output_batch(shape)
    rng = np.random.default_rng(shape)
    A = rng.integers(0, 3, (B, H)).astype(np.float32) * (rng.random((B, H)) < 0.3)
    layer.W[:] = rng.integers(-1, 2, (L, H)) * (rng.random((L, H)) < 0.5)
    layer.b[:] = rng.integers(-2, 3, L)
    targets = targets._replace(scale=rng.integers(1, 3, B).astype(np.float32))  # sample weights
    update = SGD().update(0.25, 1)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, SQUARED_ERROR, update)
    assert np.abs(A @ layer.W.T + layer.b).max() * 2 * 2 < 256, "the gradient must be exact in bfloat16"
    value2, dA2 = cpu.output_step(A, targets, got, SQUARED_ERROR, update, Rounding(0.0, seed))
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
    else:
        p = np.exp(Z - np.logaddexp.reduce(Z, axis=1)[:, None])
        worst = eZ.max(axis=1, keepdims=True)
        labelled = has.any(axis=1, keepdims=True)
        G, eG = labelled * (p - has / np.maximum(has.sum(axis=1, keepdims=True), 1)), labelled * p * np.expm1(2 * worst)
        e_value = 2 * worst[:, 0] + FLOAT32 * np.abs(Z).max()
    G, eG = np.abs(G) * weight, (eG + FLOAT32 * (np.abs(G) + 1)) * weight
    e_value = (e_value * weight[:, 0]).sum()
    e_dA = eG @ np.abs(W) + two * (G + eG) @ np.abs(W)
    e_dW = eG.T @ np.abs(A) + two * (G + eG).T @ np.abs(A)
    return e_value, e_dA, e_dW, eG.sum(axis=0)


@pytest.mark.parametrize("loss", loss_names())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_loss_and_gradients_of_the_output_layer_are_within_the_rounding_of_products(device, shape, loss):
    A, targets, layer = output_batch(shape)
    update = SGD().update(1.0, 1)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, find_loss(loss), update)
    value2, dA2 = device.output_step(A, targets, got, find_loss(loss), update)
    has = targets.Y.take(targets.rows).to_scipy().astype(bool).toarray()
    bounds = gradient_bounds(loss, A, layer.W, layer.b, has, targets.scale, HALF_ULP if device.bfloat16 else 0.0)
    read_off = 2.0**-23 * 4  # a gradient is read off as the difference of two float32
    for got_one, expected_one, bound, name in zip(
        (value2, dA2, got.W, got.b), (value, dA, expected.W, expected.b), bounds, ("loss", "dA", "W", "b"), strict=True
    ):
        excess = np.abs(np.subtract(got_one, expected_one, dtype=np.float64)) - bound - read_off
        assert excess.max() <= 0, name


@pytest.mark.parametrize("loss", loss_names())
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_loss_and_logit_gradient_are_accurate_where_bfloat16_holds_the_operands(device, shape, loss):
    """With exact operands bfloat16 rounds only the gradient of the logits, and not for the loss and the biases.

    On a GPU softmax rounds its exponentials, of which loss and biases are sums; their errors average out.
    """
    A, targets, layer = output_batch(shape)
    rng = np.random.default_rng(shape)
    A = rng.integers(0, 128, A.shape).astype(np.float32) / 64
    layer.W[:] = rng.integers(-127, 128, layer.W.shape) / np.float32(512)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, find_loss(loss), SGD().update(1.0, 1))
    value2, dA2 = device.output_step(A, targets, got, find_loss(loss), SGD().update(1.0, 1))
    on_gpu = loss == "softmax" and device.bfloat16 and isinstance(device, OnHost)
    assert value2 == pytest.approx(value, rel=HALF_ULP / 8 if on_gpu else FLOAT32)
    assert_same_change(layer, got, expected, HALF_ULP if on_gpu else 2 * FLOAT32, names="b")
    rounding = HALF_ULP if device.bfloat16 else FLOAT32
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=rounding * np.abs(dA).max())
    assert_same_change(layer, got, expected, rounding, names="W")


OPTIMIZER_CASES = [
    (name, loss, numbers)
    for i, name in enumerate(optimizer_names())
    for loss, numbers in [
        (loss_names()[i % 2], {}),
        (loss_names()[(i + 1) % 2], {"weight_decay": 0.5}),
        (loss_names()[i % 2], {"clip_norm": 0.01}),
        ("bce", {"weight_decay": 0.1, "clip_norm": 0.02}),
    ]
]


@pytest.mark.parametrize(("optimizer", "loss", "numbers"), OPTIMIZER_CASES)
@pytest.mark.parametrize("shape", [(33, 40, 100), (37, 24, 700)], ids=str)
def test_output_step_updates_parameters_and_state_like_the_reference(device, optimizer, loss, numbers, shape):
    rule = find_optimizer(optimizer)(**numbers)
    A, targets, layer = output_batch(shape, optimizer=rule)
    # Operands that bfloat16 holds, in the first step: only the rounding of the gradient is left to tolerate.
    A[:] = np.round(A * 32) / 32
    layer.W[:] = np.round(layer.W * 64) / 64
    expected, got = copy(layer), copy(layer)
    for steps in (3,) if device.bfloat16 else (3, 4):
        update = rule.update(0.1, steps)
        Reference().output_step(A, targets, expected, find_loss(loss), update)
        device.output_step(A, targets, got, find_loss(loss), update)
    assert_same_change(layer, got, expected, 4 * HALF_ULP if device.bfloat16 else 10 * FLOAT32)


@pytest.mark.parametrize("loss", loss_names())
def test_a_batch_without_any_label_is_all_negative_or_skipped(device, loss):
    A, targets, layer = output_batch((33, 40, 100))
    none = CSR(np.zeros(40, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 100)
    targets = targets._replace(Y=none)
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, find_loss(loss), SGD().update(0.1, 1))
    value2, dA2 = device.output_step(A, targets, got, find_loss(loss), SGD().update(0.1, 1))
    tolerance = 4 * HALF_ULP if device.bfloat16 else FLOAT32
    assert value2 == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=tolerance * np.abs(dA).max())
    if loss == "softmax":
        assert value2 == 0
        np.testing.assert_array_equal(got.W, layer.W)


def test_softmax_stands_logits_of_ten_thousand(device):
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
    targets = Targets(Y, np.arange(B), np.full(B, 1 / B, np.float32))
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), SGD().update(1.0, 1))
    value2, dA2 = device.output_step(A, targets, got, find_loss("softmax"), SGD().update(1.0, 1))
    assert value == pytest.approx((20032 + 0 + 20032 + 64) / 4)
    assert value2 == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(dA2, dA, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(got.b, expected.b, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("logit", "tolerance"), [(-16.8, 3e-3), (0.0, 1e-6)])
def test_softmax_counts_all_of_many_labels(cpu, logit, tolerance):
    """Terms of 5e-8 beside one of 1, and many equal terms: a sum in float32 would lose the former, and drift.

    The block of labels with the largest term may lose its small ones: 256 of 100,000.
    """
    n_labels = 100_000
    A = np.zeros((2, 32), np.float32)
    layer = random_layer(np.random.default_rng(0), (n_labels, 32), n_labels)
    layer.W[:], layer.b[:], layer.b[7] = 0, logit, 0
    Y = CSR(np.arange(3), np.array([7, 7], np.int32), np.ones(2, np.float32), n_labels)
    value, _ = cpu.output_step(A, Targets(Y, np.arange(2), np.full(2, 0.5, np.float32)), layer, find_loss("softmax"),
                               SGD().update(1.0, 1))  # fmt: skip
    assert value == pytest.approx(np.log1p((n_labels - 1) * np.exp(logit)), rel=tolerance)


@pytest.mark.parametrize("loss", loss_names())
def test_a_row_of_weight_zero_changes_nothing(device, loss):
    A, targets, layer = output_batch((8, 32, 50))
    targets.scale[3:] = 0
    first = Targets(targets.Y, targets.rows[:3], targets.scale[:3])
    all_rows, three = copy(layer), copy(layer)
    value, dA = device.output_step(A, targets, all_rows, find_loss(loss), SGD().update(0.1, 1))
    value3, dA3 = device.output_step(A[:3], first, three, find_loss(loss), SGD().update(0.1, 1))
    assert value == pytest.approx(value3, rel=1e-6)
    np.testing.assert_array_equal(dA[3:], 0)
    np.testing.assert_allclose(dA[:3], dA3, rtol=0, atol=1e-6)
    assert_same_change(layer, all_rows, three, 1e-5)


def test_a_smaller_batch_after_a_larger_one_sees_nothing_of_it(make_device):
    """Buffers are kept between calls; what an earlier batch left in them must not count."""
    device, fresh = make_device(), make_device()
    update = SGD().update(0.1, 1)
    A, targets, layer = output_batch((64, 64, 700))
    device.output_step(A, targets, layer, find_loss("bce"), update)
    A, targets, layer = output_batch((37, 64, 700))
    used, unused = copy(layer), copy(layer)
    value, dA = device.output_step(A, targets, used, find_loss("bce"), update)
    value2, dA2 = fresh.output_step(A, targets, unused, find_loss("bce"), update)
    assert value == value2
    np.testing.assert_array_equal(dA, dA2)
    np.testing.assert_array_equal(used.W, unused.W)


@pytest.mark.parametrize("shape", [(60, 40, 100), (37, 60, 100)], ids=["rows", "columns"])
def test_a_batch_after_one_that_diverged_sees_nothing_of_it(cpu, shape):
    A, targets, layer = output_batch(shape)
    A[:] = np.nan
    cpu.output_step(A, targets, layer, find_loss("bce"), SGD().update(0.1, 1))
    A, targets, layer = output_batch((37, 40, 100))
    value, dA = cpu.output_step(A, targets, layer, find_loss("bce"), SGD().update(0.1, 1))
    assert np.isfinite(value)
    assert np.isfinite(dA).all()
    assert np.isfinite(layer.W).all()


def test_activations_may_be_stored_column_by_column(cpu):
    A, targets, layer = output_batch((64, 64, 100))
    expected, got = copy(layer), copy(layer)
    value, dA = cpu.output_step(A, targets, expected, find_loss("bce"), SGD().update(0.1, 1))
    value2, dA2 = cpu.output_step(np.asfortranarray(A), targets, got, find_loss("bce"), SGD().update(0.1, 1))
    assert value2 == value
    np.testing.assert_array_equal(dA2, dA)
    np.testing.assert_array_equal(got.W, expected.W)


def test_softmax_after_a_batch_of_larger_logits_sees_nothing_of_them(make_device):
    device = make_device()
    A, targets, layer = output_batch((37, 64, 700))
    large, expected, got = copy(layer), copy(layer), copy(layer)
    large.b[:] += 1000
    device.output_step(A, targets, large, find_loss("softmax"), SGD().update(0.1, 1))
    value, _ = make_device().output_step(A, targets, expected, find_loss("softmax"), SGD().update(0.1, 1))
    value2, _ = device.output_step(A, targets, got, find_loss("softmax"), SGD().update(0.1, 1))
    assert value2 == value
    np.testing.assert_array_equal(got.W, expected.W)


def gradient_kernels():
    """Return the kernels of binary cross-entropy that this processor can run."""
    vectors = pytest.param(
        bce.negatives, marks=pytest.mark.skipif(not avx512.HAS_AVX512, reason="the processor lacks AVX-512")
    )
    return [bce.negatives_loops, vectors]


@pytest.mark.parametrize("kernel", gradient_kernels(), ids=["loops", "vectors"])
def test_the_gradient_of_cross_entropy_holds_for_logits_of_any_size(kernel):
    z = np.concatenate([np.linspace(-20, 20, 58), [0, -88, 88, 1e4, -1e4, -3e38]]).astype(np.float32)
    scale = np.linspace(0, 2, z.size).astype(np.float32)
    bias = np.float32(0.5)
    x = z.astype(np.float64) + bias
    share = 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    got = z.copy()
    value, total = kernel(got, bias, scale, scale)
    np.testing.assert_allclose(got, scale * share, rtol=1e-5, atol=1e-30)
    assert value == pytest.approx(float(scale @ np.logaddexp(0, x)), rel=1e-5)
    assert total == pytest.approx(float(scale @ share), rel=1e-5)


@pytest.mark.parametrize("n_parts", [2, FEW_PARTS + 1])
def test_the_parts_of_all_threads_are_added_up_in_their_order(n_parts):
    parts = np.random.default_rng(0).standard_normal((n_parts, 32, 48)).astype(np.float32)
    expected = parts[0].copy()
    for part in parts[1:]:
        expected += part
    with (device := CPU(2)).start():
        np.testing.assert_array_equal(device._sum(parts), expected)
