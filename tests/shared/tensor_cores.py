"""Comparisons of the products on tensor cores with sums that have no rounding."""

from __future__ import annotations

import numpy as np

from shared.layers import rounded
from xmlsgd.devices.cuda.runtime import Scalars
from xmlsgd.devices.cuda.softmax import Exponentials
from xmlsgd.devices.cuda.tensor_cores import EXPONENTIALS_SHARED, LABELS, PRODUCT_THREADS

MOST = 1e13  # of tensor_cores.cu


def operand(device, x):
    """Return an array on the GPU in bfloat16, which its numbers fit."""
    x = np.ascontiguousarray(x, np.float32)
    np.testing.assert_array_equal(rounded(x), x)
    return device.to_device(bits_of(x))


def bits_of(x):
    return (x.view(np.uint32) >> 16).astype(np.uint16)


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


def compare_exponentials(make, B, band=None, n=300, width=40, start=0, peak=0.0, **options):
    """Assert that exponentials of integers, and their sums, are right but for their rounding, and nothing else written.

    `band` is for the kernel of all GPUs, by default the GPU's own runs. The logits of the last label are `peak` higher,
    and so are those of the second row with all of the first tile.
    """
    rng, tiles, padded = np.random.default_rng(1), -(-(start + n) // LABELS), -(-n // 8) * 8
    A, W = rng.integers(-1, 2, (B, width)), np.full((padded, width), np.nan, np.float32)
    W[:n] = rng.integers(-1, 2, (n, width))
    b, reference = rng.integers(-3, 4, n).astype(np.float32), rng.integers(0, 3, B).astype(np.float32)
    b[-1] += peak
    reference[1 % B] -= peak
    device = make("bfloat16", **options)
    with device.start():
        run, placed = device.runtime, [device.to_device(x) for x in (b, reference)]
        E = device.to_device(np.full((B, -(-(start + n) // 64) * 64 + 64), 0xFFFF, np.uint16))
        sums = device.to_device(np.full((B, tiles + 1, 2), np.nan, np.float32))
        operands = operand(device, A), device.to_device(bits_of(W))[:n]
        if band is None:
            e = Exponentials(E, placed[1], None, None, None, None)
            device._softmax._exponentials_of(*operands, placed[0], start, e, sums)
        else:
            run.launch(
                "product_exponentials", -(-n // LABELS) * -(-B // LABELS), *operands, *placed, width, B, n, start,
                E.shape[1], tiles + 1, band, E, sums, threads=PRODUCT_THREADS, shared=EXPONENTIALS_SHARED,
            )  # fmt: skip
        written, sums = device.to_host(E), device.to_host(sums)
    first = start // LABELS
    Z = np.full((B, tiles - first, LABELS), -np.inf)
    Z.reshape(B, -1)[:, :n] = A @ W[:n].T + b - reference[:, None]
    top = np.where(np.exp(Z).sum(axis=2) > MOST, Z.max(axis=2), 0)
    got = np.zeros(Z.shape)
    got.reshape(B, -1)[:, :padded] = from_operand(written[:, start : start + padded])
    np.testing.assert_allclose(got, np.exp(Z - top[:, :, None]), rtol=2**-8, atol=1e-37)
    np.testing.assert_allclose(sums[:, first:tiles, 0], top, rtol=1e-6)
    np.testing.assert_allclose(sums[:, first:tiles, 1], got.sum(axis=2), rtol=1e-5)
    assert (written[:, :start] == 0xFFFF).all()
    assert (written[:, start + padded :] == 0xFFFF).all()
    assert np.isnan(sums[:, :first]).all()
    assert np.isnan(sums[:, tiles:]).all()
