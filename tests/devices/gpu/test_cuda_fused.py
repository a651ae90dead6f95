"""Softmax inside of products: what the reference computes from the same operands, and sums that have no rounding."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shared.fake_gpu.kernels import planted
from shared.fake_gpu.shim import shim_device
from shared.layers import assert_same_change, copy, output_batch, rounded
from shared.needs import NEEDS_COMPILER
from shared.on_host import OnHost
from xmlsgd.devices.cuda.descent import Factors
from xmlsgd.devices.cuda.fused import BAND, EXPONENTIALS_SHARED, LABELS, PRODUCT_THREADS, FusedSoftmax
from xmlsgd.devices.cuda.once import PILOT, Exponentials, SoftmaxOnce
from xmlsgd.devices.cuda.runtime import kernel_source
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.losses import find_loss
from xmlsgd.nn.optimizers import SGD, Adam

BUGS = {
    "copies are not waited for": ("wait_for_copies<STAGES - 2>", "wait_for_copies<STAGES - 1>"),
    "copies of rows are not waited for": ("<WEIGHT_STAGES - 2>", "<WEIGHT_STAGES - 1>"),
    "a stage is written while it is read": ("written == (STAGES - 1) * whole ? 0", "written == whole ? 0"),
    "a stage of rows is written while it is read": ("written == (WEIGHT_STAGES - 1) * whole", "written == 3 * whole"),
    "half of a stage is left out": ("half < DEEP / 16", "half < 1"),
    "groups are looked for elsewhere": ("label, half * 2 + ((lane >> 3) & 1), 3)", "label, half * 2, 3)"),
    "labels are written in another order": ("int column = label_of(n,", "int column = label_of(n ^ 4,"),
    "labels that are not there count": ("label < C ? b[label] : LOWEST", "b[label < C ? label : 0]"),
    "biases are those of the first block": ("label < C ? b[label]", "label < C ? b[label - first_label]"),
    "the reference is left out": ("row < B ? reference[row] : 0.0f, top", "0.0f, top"),
    "the last band is as wide as the others": ("n_labels - first < band", "n_labels < band"),
    "large logits are not brought down": ("if (all > MOST) top = best - shift;", ""),
    "tiles keep their references": ("expf(mine[2 * (at / LABELS)] - top)", "1.0f"),
    "a total leaves out what was scaled anew": ("                sum += written[c];\n", ""),
    "the sums of later chunks overwrite the first": ("start / LABELS + tile", "tile"),
    "exponentials of later chunks are not read": ("E + line * stride + start + first", "E + line * stride + first"),
    "the last group of a row is left out": ("last && fetched", "false && fetched"),
    "rows behind the last are taken": ("two = fetched + 8 < B", "two = true"),
    "weights are replaced": ("beta * old[n][0]", "0.0f"),
    "every second column is left out": ("both.y = beta * old[n][1] + alpha * got[1]", "both.y = 0.0f"),
    "the factor is one operand": ("partial[label] = got[0] + got[1]", "partial[label] = got[0]"),
}  # fmt: skip


def operand(device, x):
    """Return an array on the GPU in bfloat16, which its numbers fit."""
    x = np.ascontiguousarray(x, np.float32)
    np.testing.assert_array_equal(rounded(x), x)
    return device.to_device((x.view(np.uint32) >> 16).astype(np.uint16))


def from_operand(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def fused(make, **options):
    return OnHost(make("bfloat16", softmax="fused", **options))


def compare(make, shape, optimizer, peak=0.0):
    """Assert that a step is that of the reference on the same operands."""
    A, targets, layer = output_batch(shape, optimizer=optimizer)
    A[:], layer.W[:] = rounded(A), rounded(layer.W)
    layer.b[-1] += peak
    expected, got, update = copy(layer), copy(layer), optimizer.update(0.1, 3)
    value, dA = Reference().output_step(A, targets, expected, find_loss("softmax"), update)
    value2, dA2 = fused(make, chunk_bytes=100_000).output_step(A, targets, got, find_loss("softmax"), update)
    assert value2 == pytest.approx(value, rel=1e-4, abs=1e-4)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=4e-3 * max(np.abs(dA).max(), 1e-3))
    assert_same_change(layer, got, expected, 1e-2)


@pytest.mark.parametrize("optimizer", [SGD(weight_decay=0.3), Adam(clip_norm=0.05)], ids=["sgd", "adam"])
@pytest.mark.parametrize("shape", [(7, 24, 9), (37, 13, 700), (130, 131, 300), (20, 300, 140)], ids=str)
def test_a_step_is_that_of_the_reference_on_the_same_operands(make, shape, optimizer):
    compare(make, shape, optimizer)


@pytest.mark.parametrize("H", [1, 24, 131, 134, 135, 300])
@pytest.mark.parametrize("B", [1, 16, 90])
def test_weights_and_sums_of_small_integers_are_exact(make, B, H):
    compare_exactly(make, B, H)


def compare_exactly(make, B, H):
    """Assert that E^T scaled, taken from twice W, and the products of E with both parts of the factor are exact."""
    rng, n, start, even = np.random.default_rng(0), 140, 128, H + H % 2
    E, scaled = rng.integers(-4, 5, (B, 272)).astype(np.float32), np.zeros((B, -(-(even + 2) // 8) * 8), np.float32)
    E[:, start + n :] = 0
    scaled[:, :H], scaled[:, even : even + 2] = rng.integers(-4, 5, (B, H)), rng.integers(-4, 5, (B, 2))
    W = rng.integers(-9, 10, (n, H)).astype(np.float32)
    device = make("bfloat16", softmax="fused")
    with device.start():
        placed, numbers = device.to_device(W), np.array([-3, 2], np.float32)
        partial = device._softmax._products(
            Exponentials(operand(device, E), None, None, None, None, operand(device, scaled)), start, placed,
            Factors(numbers, device.to_device(numbers)),
        )  # fmt: skip
        got, sums = device.to_host(placed), device.to_host(partial)
    mine = E[:, start : start + n]
    np.testing.assert_array_equal(got, 2 * W - 3 * mine.T @ scaled[:, :H])
    np.testing.assert_array_equal(sums[0], mine.T @ scaled[:, even : even + 2].sum(axis=1))


@pytest.mark.parametrize("band", [1, 2, 3, BAND])
@pytest.mark.parametrize("B", [5, 150])
def test_exponentials_of_integers_are_those_of_the_logits_whatever_the_order_of_blocks(make, B, band):
    compare_exponentials(make, B, band)


def compare_exponentials(make, B, band):
    """Assert that exponentials of integers, and their sums, are right but for their rounding."""
    rng, n, width = np.random.default_rng(1), 300, 40
    A, W = rng.integers(-1, 2, (B, width)), rng.integers(-1, 2, (n, width))
    b, reference = rng.integers(-3, 4, n).astype(np.float32), rng.integers(0, 3, B).astype(np.float32)
    Z = (A @ W.T + b - reference[:, None]).astype(np.float32)
    device = make("bfloat16", softmax="fused")
    tiles = -(-n // LABELS)
    blocks = tiles * -(-B // LABELS)
    with device.start():
        run = device.runtime
        E, sums = run.empty((B, 304), run.operand), run.empty((B, tiles, 2))
        run.launch(
            "product_exponentials", blocks, operand(device, A), operand(device, W), device.to_device(b),
            device.to_device(reference), width, B, n, 0, 304, tiles, band, E, sums, threads=PRODUCT_THREADS,
            shared=EXPONENTIALS_SHARED,
        )  # fmt: skip
        got, sums = from_operand(device.to_host(E)), device.to_host(sums)
    np.testing.assert_allclose(got[:, :n], np.exp(Z), rtol=2**-8)
    assert not got[:, n:].any()
    assert not sums[:, :, 0].any()
    whole = np.add.reduceat(got[:, :n].astype(np.float64), np.arange(0, n, LABELS), axis=1)
    np.testing.assert_allclose(sums[:, :, 1], whole, rtol=1e-5)


@NEEDS_COMPILER
def test_a_gpu_that_does_not_multiply_bfloat16_sweeps_over_logits():
    kinds = [type(shim_device("bfloat16", softmax="fused", capability=one)._softmax) for one in ("75", "80")]
    assert kinds == [SoftmaxOnce, FusedSoftmax]
    assert type(shim_device("float32", softmax="fused")._softmax) is SoftmaxOnce
    with pytest.raises(DataError, match="softmax must be one of chunked, kept, fused, got 'fuse'"):
        shim_device(softmax="fuse")


@NEEDS_COMPILER
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_planted_in_the_products_is_found(bug):
    edit = partial(planted, *BUGS[bug])
    assert edit(kernel_source(products=True)) != kernel_source(products=True)
    with pytest.raises((AssertionError, RuntimeError, RuntimeWarning)):
        compare_all(partial(shim_device, edit=edit))


@NEEDS_COMPILER
def test_the_products_as_they_are_pass_the_comparison():
    compare_all(shim_device)


def compare_all(make):
    """Compare both products, and steps of several chunks and blocks, one with logits to bring down."""
    compare_exactly(make, 20, 128)
    compare_exactly(make, 90, 85)
    compare_exponentials(make, 150, 2)
    for optimizer in (SGD(), Adam()):
        compare(make, (133, 85, 610), optimizer)
    compare(make, (5, 24, PILOT + 300), SGD(), peak=120.0)
