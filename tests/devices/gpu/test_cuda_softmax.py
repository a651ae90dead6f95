"""Softmax on a GPU: the steps of the reference in both precisions, and what bfloat16 costs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shared.fake_gpu.shim import shim_device
from shared.layers import assert_same_change, copy, output_batch, rounded
from shared.needs import NEEDS_COMPILER, NEEDS_GPU
from shared.on_host import OnHost
from xmlsgd.devices.cuda import CUDA
from xmlsgd.devices.cuda.hopper import HopperSoftmaxStep
from xmlsgd.devices.cuda.softmax import PILOT, SoftmaxStep
from xmlsgd.devices.cuda.tensor_cores import TensorCoreSoftmaxStep
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.losses import find_loss
from xmlsgd.nn.optimizers import SGD, Adam

PRECISIONS = ("float32", "bfloat16")


@pytest.fixture(
    params=[
        pytest.param(shim_device, id="shim", marks=NEEDS_COMPILER),
        pytest.param(partial(shim_device, capability="80"), id="shim of an Ampere", marks=NEEDS_COMPILER),
        pytest.param(lambda precision, **options: CUDA(precision=precision, **options), id="cuda", marks=NEEDS_GPU),
    ]
)
def make(request):
    return lambda precision, **options: OnHost(request.param(precision, **options))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("optimizer", [SGD(weight_decay=0.3), Adam(clip_norm=0.05)], ids=["sgd", "adam"])
@pytest.mark.parametrize(
    ("shape", "labels"),
    [((7, 24, 9), 3), ((37, 13, 300), 3), ((37, 13, 300), 60), ((130, 131, 140), 3), ((133, 13, 700), 3)],
    ids=str,
)
def test_a_step_is_that_of_the_reference_on_the_same_operands(make, precision, shape, labels, optimizer):
    A, targets, layer = output_batch(shape, optimizer=optimizer, per_row=labels)
    A[:], layer.W[:] = rounded(A), rounded(layer.W)
    update, expected, got = optimizer.update(0.1, 3), copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), update)
    value2, dA2 = make(precision, chunk_bytes=100_000).output_step(A, targets, got, find_loss("softmax"), update)
    exact = precision == "float32"
    assert value2 == pytest.approx(value, rel=1e-5 if exact else 1e-4, abs=1e-6 if exact else 1e-4)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=(3e-5 if exact else 4e-3) * max(np.abs(dA).max(), 1e-3))
    assert_same_change(layer, got, expected, 1e-3 if exact else 1e-2)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("loss", "chunk_bytes"), [("softmax", 21_000), ("bce", 120_000)])
def test_a_long_sum_over_labels_is_taken_in_parts(make, monkeypatch, precision, loss, chunk_bytes):
    """Of several chunks, of which the first has fewer parts than the others, or more."""
    monkeypatch.setattr("xmlsgd.devices.cuda.chunks.LEAST_LABELS", 100)
    A, targets, layer = output_batch((37, 13, 900))
    A[:], layer.W[:] = rounded(A), rounded(layer.W)
    update, expected, got = SGD().update(0.1, 3), copy(layer), copy(layer)
    _, dA = Reference().output_step(A, targets, expected, find_loss(loss), update)
    _, dA2 = make(precision, chunk_bytes=chunk_bytes).output_step(A, targets, got, find_loss(loss), update)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=(3e-5 if precision == "float32" else 4e-3) * np.abs(dA).max())
    assert_same_change(layer, got, expected, 1e-3 if precision == "float32" else 1e-2)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_logits_far_above_the_reference_beyond_the_pilot_are_scaled_again(make, precision):
    """The row's largest logit lies where no reference is taken from, or so does every one of a rising flight."""
    A, targets, layer = output_batch((3, 8, PILOT + 1500))
    layer.b[PILOT + 700] += 200
    layer.b[PILOT + 1000 :: 90] += 45 * np.arange(len(layer.b[PILOT + 1000 :: 90]), dtype=np.float32)
    expected, got, update = copy(layer), copy(layer), SGD().update(0.1, 1)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), update)
    value2, dA2 = make(precision).output_step(A, targets, got, find_loss("softmax"), update)
    tolerance = 1e-4 if precision == "float32" else 2e-2
    assert value2 == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=tolerance * np.abs(dA).max())
    np.testing.assert_allclose(got.b, expected.b, rtol=0, atol=tolerance * np.abs(expected.b - layer.b).max() + 1e-4)


@pytest.mark.parametrize("rows", [8, 133])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_step_on_logits_of_a_million_is_finite(make, precision, rows):
    """Where bfloat16 rounds a reference, or its operands, otherwise than E's logits, these are far below it."""
    A, targets, layer = output_batch((rows, 16, 300))
    layer.W[:] += targets.Y.to_scipy()[targets.rows].T @ A  # labels have the largest logits of their rows
    layer.W[:] *= 1e6 / np.abs(A @ layer.W.T).max()
    expected, got, update = copy(layer), copy(layer), SGD().update(1e-3, 1)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), update)
    value2, dA2 = make(precision).output_step(A, targets, got, find_loss("softmax"), update)
    assert value2 == pytest.approx(value, rel=1e-2)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=1e-2 * np.abs(dA).max())
    assert np.isfinite(got.W).all()


def peaked_batch():
    """Return a batch whose logits have a standard deviation of about 4, as those of a trained model."""
    A, targets, layer = output_batch((48, 64, 1500))
    layer.W[:] *= 2.5
    layer.b[:] *= 0.5
    return A, targets, layer


def hidden_gradient(Z, targets, W):
    """Return dA (B, H) of a softmax over the logits Z."""
    P = np.exp(Z.astype(np.float64) - Z.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    T = targets.Y.to_scipy()[targets.rows].toarray() != 0
    counts = T.sum(axis=1, keepdims=True)
    return (np.where(counts > 0, P - T / np.maximum(counts, 1), 0) * targets.scale[:, None]) @ W


def error(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def test_gradients_in_bfloat16_are_twice_as_precise_as_those_of_rounded_logits(make):
    A, targets, layer = peaked_batch()
    A[:], layer.W[:] = rounded(A), rounded(layer.W)  # the rounding of operands is common to both
    expected, got = copy(layer), copy(layer)
    update = SGD().update(0.1, 1)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), update)
    value2, dA2 = make("bfloat16").output_step(A, targets, got, find_loss("softmax"), update)
    usual = hidden_gradient(rounded(A @ layer.W.T + layer.b), targets, layer.W)
    assert error(dA2, dA) < error(usual, dA) / 2
    assert error(dA2, dA) < 5e-3
    assert error(got.W - layer.W, expected.W - layer.W) < 5e-3
    assert error(got.b - layer.b, expected.b - layer.b) < 5e-3
    assert value2 == pytest.approx(value, rel=2e-3)


@NEEDS_COMPILER
@pytest.mark.parametrize(("precision", "capability"), [("float32", "90"), ("bfloat16", "90"), ("bfloat16", "80")])
def test_neither_the_order_of_threads_nor_that_of_blocks_changes_a_bit(precision, capability):
    A, targets, layer = output_batch((133, 40, 340))
    results = []
    for seed in (0, 1):
        changed = copy(layer)
        device = OnHost(shim_device(precision, seed=seed, capability=capability))
        value, dA = device.output_step(A, targets, changed, find_loss("softmax"), SGD().update(0.1, 1))
        results.append([np.array(value), dA, changed.W, changed.b])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


@NEEDS_COMPILER
def test_tensor_cores_are_for_bfloat16_on_gpus_that_have_them():
    assert type(shim_device("float32")._softmax) is SoftmaxStep
    assert type(shim_device("auto", capability="75")._softmax) is SoftmaxStep
    for capability in ("80", "89", "100", "120"):
        assert type(shim_device("auto", capability=capability)._softmax) is TensorCoreSoftmaxStep
    assert type(shim_device("auto", capability="90")._softmax) is HopperSoftmaxStep
    assert type(shim_device("auto", capability="90", nvrtc=(12, 8))._softmax) is TensorCoreSoftmaxStep
    with pytest.raises(DataError, match=r"^precision: 'bfloat16' takes a GPU of compute capability 8 or newer, .* 7.5"):
        shim_device("bfloat16", capability="75")
