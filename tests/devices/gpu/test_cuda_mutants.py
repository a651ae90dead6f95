"""Bugs planted in the GPU's kernels are found by comparing them with the reference on the CPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shared.fake_gpu.kernels import planted
from shared.fake_gpu.shim import shim_device
from shared.layers import FLOAT32, assert_same_change, copy, input_batch, output_batch, random_layer, rounded
from shared.needs import NEEDS_COMPILER
from shared.on_host import OnHost
from xmlsgd.devices.base import Dropout
from xmlsgd.devices.cuda.runtime import SOURCE
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.losses import find_loss, loss_names
from xmlsgd.nn.optimizers import SGD, Adam, RowAdagrad

pytestmark = NEEDS_COMPILER

BUGS = {
    "a barrier is lost": ("parts[threadIdx.x >> 5] = x;\n    __syncthreads();", "parts[threadIdx.x >> 5] = x;"),
    "a butterfly stops halfway": ("offset > 0; offset >>= 1) x +=", "offset > 1; offset >>= 1) x +="),
    "a loop ends one early": ("e < found", "e < found - 1"),
    "every key counts as the first": ("keys[first - 1] >> 32 == feature", "keys[first - 1] == keys[first]"),
    "a long segment is read with gaps": ("found == WARP; base += WARP", "found == WARP; base += 2 * WARP"),
    "columns beyond a tile are left out": ("tile < to; tile += TILE", "tile < to && tile < TILE; tile += TILE"),
    "every tile updates the whole row": ("t, H, from, to, hyper);", "t, H, 0, H, hyper);"),
    "bounds are not checked": ("if (at < n) dA[at] =", "dA[at] ="),
    "labels of a chunk are counted from zero": ("(u32)(start + c)", "(u32)c"),
    "ties go to the larger label": ("<< 32) | (u64)(~label)", "<< 32) | (u64)label"),
    "positives overwrite the sum of a bias": ("partial[column] += sum", "partial[column] = sum"),
    "positives of other chunks are mended": ("if (column < 0 || column >= C) return;", "if (column < 0) return;"),
    "the sum of earlier chunks is not scaled": ("total[blockIdx.x] * expf(before - top)", "total[blockIdx.x]"),
    "a state is not kept": ("        *t = square;\n", ""),
    "the norm is not clipped": ("factor = hyper[CLIP] / norm", "factor = 1.0f"),
    "the mask is that of the batch": ("kept(seed, q + number, threshold)", "kept(seed, q, threshold)"),
    "the last row of a part has no loss": ("i = first; i < last; ++i) {", "i = first; i < last - 1; ++i) {"),
    "biases are left out of the logits": ("last[0] = high", "last[0] = 0.0f"),
    "a sum of exponentials counts labels": ("sum += from_operand(rounded);", "sum += 1.0f;"),
    "labels are not added to the gradient": ("W[column * H + j] += step[0] * sum;", ";"),
    "the gradient of a bias keeps its labels": ("partial[column] -= sum;", ";"),
    "a row's labels pull with another row's share": ("target[row] * pulled[at]", "target[0] * pulled[at]"),
    "replicas are added unweighed": ("sum += weights[r] *", "sum += weights[0] *"),
    "operands are cut instead of rounded": ("(bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16", "bits >> 16"),
}  # fmt: skip


def compare(make):
    """Assert that a device computes what the reference does, on shapes that no block, warp or chunk divides."""
    device, reference = OnHost(make("float32", chunk_bytes=40_000, free=0)), Reference()
    dropout, clipped = Dropout(0.3, 7), Adam(clip_norm=0.05)
    X, rows, layer, dZ = input_batch(B=260, H=150, F=8, optimizer=clipped)
    A = reference.input_forward(X, rows, layer, dropout)
    np.testing.assert_allclose(device.input_forward(X, rows, layer, dropout), A, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(device.through_relu(dZ.copy(), A, 2.0), reference.through_relu(dZ, A, 2.0))
    for update in (clipped.update(0.1, 2), Adam().update(0.1, 2)):
        step = partial(input_step, (X, rows, dZ), update, dropout)
        steps(device, layer, step)
    for i, loss in enumerate(map(find_loss, loss_names())):
        rule = (Adam(), RowAdagrad(clip_norm=0.01), RowAdagrad())[i]
        A, targets, layer = output_batch((37, 24, 700), optimizer=rule)
        step = partial(output_step, (A, targets), loss, rule.update(0.1, 2))
        (value, dA), (expected, dA_expected) = steps(device, layer, step, 10 * FLOAT32)
        assert value == pytest.approx(expected, rel=FLOAT32)
        np.testing.assert_allclose(dA, dA_expected, rtol=0, atol=FLOAT32 * np.abs(dA_expected).max())
    once = OnHost(make("float32", chunk_bytes=40_000, softmax="kept"))
    for optimizer in (SGD(), Adam()):
        A, targets, layer = output_batch((33, 24, 300), optimizer=optimizer)
        step = partial(output_step, (A, targets), find_loss("softmax"), optimizer.update(0.1, 2))
        (value, dA), (expected, dA_expected) = steps(once, layer, step, 10 * FLOAT32)
        assert value == pytest.approx(expected, rel=FLOAT32)
        np.testing.assert_allclose(dA, dA_expected, rtol=0, atol=FLOAT32 * np.abs(dA_expected).max())
    layer = random_layer(np.random.default_rng(0), (700, 24), 700)
    layer.W[:], layer.b[:] = 0, np.arange(700) % 3
    for got, best in zip(device.top_k(A, layer, 5), reference.top_k(A, layer, 5), strict=True):
        np.testing.assert_array_equal(got, best)
    whole, weights = np.random.default_rng(0).standard_normal((2, 3, 30), dtype=np.float32), [0.25, 2.0]
    with once.start():
        total = once.device.weighted_sum([once.device.to_device(part) for part in whole], weights)
        np.testing.assert_allclose(once.device.to_host(total), np.tensordot(weights, whole, 1), rtol=0, atol=1e-6)
    narrow = make("bfloat16")
    with narrow.start():
        operand = narrow.to_host(narrow._output.operand("weights", narrow.to_device(np.ascontiguousarray(A))))
    np.testing.assert_array_equal(operand, rounded(A).view(np.uint32) >> 16)


def input_step(batch, update, dropout, device, layer):
    device.input_step(*batch, layer, update, dropout)


def output_step(batch, loss, update, device, layer):
    return device.output_step(*batch, layer, loss, update)


def steps(device, layer, step, tolerance=1e-4):
    """Return what `step` returns on the device and on the reference; assert that the layer has changed alike."""
    got, expected = copy(layer), copy(layer)
    results = step(device, got), step(Reference(), expected)
    assert_same_change(layer, got, expected, tolerance)
    return results


def test_the_kernels_as_they_are_pass_the_comparison():
    compare(shim_device)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    edit = partial(planted, *BUGS[bug])
    assert edit(SOURCE.read_text()) != SOURCE.read_text()
    with pytest.raises((AssertionError, RuntimeError)):
        compare(partial(shim_device, edit=edit))
