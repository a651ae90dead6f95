"""Softmax that keeps its exponentials: the step of two exponentials, and what bfloat16 costs there."""

from __future__ import annotations

import numpy as np
import pytest

from shared.fake_gpu.shim import shim_device
from shared.layers import assert_same_change, copy, output_batch, rounded
from shared.needs import NEEDS_COMPILER
from shared.on_host import OnHost
from xmlsgd.devices.cuda.once import PILOT
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.losses import find_loss
from xmlsgd.nn.optimizers import SGD, Adam

FORMS = [
    pytest.param("float32", {}, id="float32"),
    pytest.param("bfloat16", {}, id="bfloat16"),
    pytest.param("bfloat16", {"softmax": "fused"}, id="fused"),
]


def shim(precision, **options):
    return OnHost(shim_device(precision, **{"softmax": "kept", **options}))


@pytest.fixture
def make(make):
    return lambda precision, **options: OnHost(make(precision, **{"softmax": "kept", **options}))


@pytest.mark.parametrize("optimizer", [SGD(weight_decay=0.3), Adam(clip_norm=0.05)], ids=["sgd", "adam"])
@pytest.mark.parametrize("shape", [(7, 24, 1), (37, 24, 700), (66, 30, 5000)], ids=str)
def test_one_exponential_a_logit_makes_the_step_of_two(make, shape, optimizer):
    A, targets, layer = output_batch(shape, optimizer=optimizer)
    update, expected, got = optimizer.update(0.1, 3), copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), update)
    value2, dA2 = make("float32", chunk_bytes=100_000).output_step(A, targets, got, find_loss("softmax"), update)
    assert value2 == pytest.approx(value, rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=3e-5 * max(np.abs(dA).max(), 1e-3))
    assert_same_change(layer, got, expected, 1e-3)


@pytest.mark.parametrize(("precision", "options"), FORMS)
def test_logits_far_above_the_reference_beyond_the_pilot_are_scaled_anew(make, precision, options):
    """The row's largest logit lies where no reference is taken from, or so does every one of a rising flight."""
    A, targets, layer = output_batch((9, 24, PILOT + 2500))
    layer.b[PILOT + 700] += 200
    layer.b[PILOT + 1000 :: 90] += 45 * np.arange(len(layer.b[PILOT + 1000 :: 90]), dtype=np.float32)
    expected, got, update = copy(layer), copy(layer), SGD().update(0.1, 1)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), update)
    value2, dA2 = make(precision, **options).output_step(A, targets, got, find_loss("softmax"), update)
    tolerance = 1e-4 if precision == "float32" else 2e-2
    assert value2 == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=tolerance * np.abs(dA).max())
    np.testing.assert_allclose(got.b, expected.b, rtol=0, atol=tolerance * np.abs(expected.b - layer.b).max() + 1e-4)


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


@pytest.mark.parametrize("options", [{}, {"softmax": "fused"}], ids=["swept", "fused"])
def test_bfloat16_logits_less_a_reference_are_twice_as_precise_as_those_as_they_come(make, options):
    A, targets, layer = peaked_batch()
    A[:], layer.W[:] = rounded(A), rounded(layer.W)  # the rounding of operands is common to both
    expected, got = copy(layer), copy(layer)
    update = SGD().update(0.1, 1)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), update)
    value2, dA2 = make("bfloat16", **options).output_step(A, targets, got, find_loss("softmax"), update)
    usual = hidden_gradient(rounded(A @ layer.W.T + layer.b), targets, layer.W)
    assert error(dA2, dA) < error(usual, dA) / 2
    assert error(dA2, dA) < 5e-3
    assert error(got.W - layer.W, expected.W - layer.W) < 5e-3
    assert error(got.b - layer.b, expected.b - layer.b) < 5e-3
    assert value2 == pytest.approx(value, rel=2e-3)


@NEEDS_COMPILER
@pytest.mark.parametrize(("precision", "options"), FORMS)
def test_neither_the_order_of_threads_nor_that_of_blocks_changes_a_bit(precision, options):
    A, targets, layer = output_batch((133, 40, 300))
    results = []
    for seed in (0, 1):
        changed = copy(layer)
        value, dA = shim(precision, seed=seed, **options).output_step(
            A, targets, changed, find_loss("softmax"), SGD().update(0.1, 1)
        )
        results.append([np.array(value), dA, changed.W, changed.b])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
