"""Results on fresh random data against the reference in float64, and two runs against each other.

`python -m benchmarks.gpu.correctness` prints those of a few cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from xmlsgd.data.synthetic import make_xmc
from xmlsgd.devices.base import Device, Targets
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.losses import loss_names
from xmlsgd.nn.network import Network, state_layout
from xmlsgd.nn.optimizers import find_optimizer, optimizer_names

from .target import Target

ROWS, LIMITS = 64, {"float32": 1e-3, "bfloat16": 3e-2}  # of the largest change of a tensor
K = 5


FEW = [("bce", "adam"), ("softmax", "sgd"), ("bce", "row_rmsprop")]


def correctness(target: Target, few: bool = False) -> Iterator[dict[str, Any]]:
    """Yield, as they come, each case's error relative to the largest change of its tensor, and what went wrong."""
    seed = int(np.random.SeedSequence().entropy or 0) % 2**31
    errors: dict[str, float] = {}
    failures: list[str] = []
    cases = FEW
    if not (target.shim or few):
        cases = [(loss, optimizer) for loss in loss_names() for optimizer in optimizer_names()]
    for precision, limit in LIMITS.items():
        for loss, optimizer in cases:
            name = f"{precision} {loss} {optimizer}"
            changes, again = (_step(target.device(precision), loss, optimizer, seed) for _ in range(2))
            expected = _step(Reference(), loss, optimizer, seed)
            errors[name] = max(_error(changes[tensor], expected[tensor]) for tensor in changes)
            if not errors[name] <= limit:
                failures.append(f"{name}: error {errors[name]:.2e}, more than {limit:g}")
            if any(not np.array_equal(again[tensor], changes[tensor]) for tensor in again):
                failures.append(f"{name}: two runs differ")
            yield {"seed": seed, "errors": errors, "failures": failures}


def _step(device: Device, loss: str, optimizer: str, seed: int) -> dict[str, np.ndarray]:
    """Return what one step changes in each parameter, and the scores of the best labels."""
    data = make_xmc(2 * ROWS, 300, 400, nnz_per_row=20, labels_per_row=4, random_state=seed)
    network, rule = Network(300, 400, (48,), loss), find_optimizer(optimizer)()
    flat = np.zeros(network.layout.size, np.float32)
    network.initialize(flat, data.Y, seed)
    views = network.layout.views(flat)
    # What bfloat16 holds: with other weights, rounding of operands would hide small mistakes.
    views["W1"][:] = np.round(np.random.default_rng(seed).standard_normal(views["W1"].shape) * 16) / 128
    before = flat.copy()
    states = state_layout(network.layout, rule)
    state = np.full(states.size, 0.5, np.float32)
    with device.start():
        placed = device.to_device(flat)
        none = device.to_device(np.zeros((1, 1), np.float32))
        layers = network.layers(placed, states.views(device.to_device(state)), none)
        scale = np.full(ROWS, 1 / ROWS, np.float32)
        network.step(device, layers, data.X, Targets(data.Y, np.arange(ROWS), scale), rule.update(0.1, 3), seed)
        A = network.hidden_activations(device, layers, data.X, np.arange(ROWS))
        _, scores = device.top_k(A, layers[-1], K)
        flat = device.to_host(placed)
    changes = network.layout.views(flat - before)
    return {**changes, "scores": scores}


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest number."""
    return float(np.abs(got - expected).max() / max(float(np.abs(expected).max()), 1e-30))


if __name__ == "__main__":
    *_, result = correctness(Target(shim=False), few=True)
    print(*result["failures"] or ["no failure"], sep="\n")
