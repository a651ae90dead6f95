"""Comparisons of the products on tensor cores with sums that have no rounding."""

from __future__ import annotations

import numpy as np

from shared.layers import rounded
from xmlsgd.devices.cuda.gemm_update import Scalars
from xmlsgd.devices.cuda.softmax import Exponentials
from xmlsgd.devices.cuda.tensor_cores import EXPONENTIALS_SHARED, LABELS, PRODUCT_THREADS


def operand(device, x):
    """Return an array on the GPU in bfloat16, which its numbers fit."""
    x = np.ascontiguousarray(x, np.float32)
    np.testing.assert_array_equal(rounded(x), x)
    return device.to_device((x.view(np.uint32) >> 16).astype(np.uint16))


def from_operand(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def compare_exactly(make, B, H):
    """Assert that E^T scaled, taken from twice W, and the products of E with both parts of the factor are exact."""
    rng, n, start, even = np.random.default_rng(0), 140, 128, H + H % 2
    E, scaled = rng.integers(-4, 5, (B, 272)).astype(np.float32), np.zeros((B, -(-(even + 2) // 8) * 8), np.float32)
    E[:, start + n :] = 0
    scaled[:, :H], scaled[:, even : even + 2] = rng.integers(-4, 5, (B, H)), rng.integers(-4, 5, (B, 2))
    W = rng.integers(-9, 10, (n, H)).astype(np.float32)
    device = make("bfloat16")
    with device.start():
        placed, numbers = device.to_device(W), np.array([-3, 2], np.float32)
        partial = device._softmax._weight_product(
            Exponentials(operand(device, E), None, None, None, None, operand(device, scaled)), start, placed,
            Scalars(numbers, device.to_device(numbers)),
        )  # fmt: skip
        got, sums = device.to_host(placed), device.to_host(partial)
    mine = E[:, start : start + n]
    np.testing.assert_array_equal(got, 2 * W - 3 * mine.T @ scaled[:, :H])
    np.testing.assert_array_equal(sums[0], mine.T @ scaled[:, even : even + 2].sum(axis=1))


def compare_exponentials(make, B, band):
    """Assert that exponentials of integers, and their sums, are right but for their rounding."""
    rng, n, width = np.random.default_rng(1), 300, 40
    A, W = rng.integers(-1, 2, (B, width)), rng.integers(-1, 2, (n, width))
    b, reference = rng.integers(-3, 4, n).astype(np.float32), rng.integers(0, 3, B).astype(np.float32)
    Z = (A @ W.T + b - reference[:, None]).astype(np.float32)
    device = make("bfloat16")
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
