"""Weights rounded to bfloat16 at random on a GPU: their mean is exact, and two runs draw alike."""

from __future__ import annotations

import numpy as np
import pytest

from shared.layers import copy, output_batch
from shared.on_host import OnHost
from xmlsgd.devices.cuda import SOFTMAX_FORMS
from xmlsgd.nn.losses import find_loss
from xmlsgd.nn.optimizers import SGD

DRAWS = 400


def rounded(device, weights, seed):
    """Return weights as operands of products, as float32."""
    with device.start():
        operand = device.to_host(device._output.operand("weights", device.to_device(weights), seed))
    return (operand[:, : weights.shape[1]].astype(np.uint32) << 16).view(np.float32)


def neighbors(weights):
    """Return the bfloat16 numbers on both sides of each weight, the one towards zero first."""
    below = weights.view(np.uint32) & np.uint32(0xFFFF0000)
    return below.view(np.float32), (below + np.uint32(0x10000)).view(np.float32)


def test_a_weight_becomes_one_of_its_two_neighbors_with_the_chance_that_keeps_the_mean(make):
    weights = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
    device = make(precision="bfloat16", stochastic=True)
    drawn = np.stack([rounded(device, weights, device.runtime.draw()) for _ in range(DRAWS)])
    near, far = neighbors(weights)
    assert ((drawn == near) | (drawn == far)).all()
    spread = np.abs(far - near) / np.sqrt(DRAWS)
    assert (np.abs(drawn.mean(axis=0) - weights) < 4 * spread).all()
    assert len({one.tobytes() for one in drawn}) > DRAWS // 2, "each draw is another"


def test_what_bfloat16_holds_or_cannot_hold_is_not_drawn(make):
    weights = np.array([[0.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 3.4e38, 2.0**-140]], np.float32)
    device = make(precision="bfloat16")
    nearest, drawn = (rounded(device, weights, seed) for seed in (0, 12345))
    np.testing.assert_array_equal(drawn[:, :7], nearest[:, :7])


@pytest.mark.parametrize("softmax", SOFTMAX_FORMS)
def test_steps_draw_anew_and_two_devices_draw_alike(make, softmax):
    A, targets, layer = output_batch((33, 40, 100))
    update, results = SGD().update(0.1, 1), []
    for stochastic in (True, True, False):
        device = OnHost(make(precision="bfloat16", stochastic=stochastic, softmax=softmax))
        steps = [device.output_step(A, targets, copy(layer), find_loss("softmax"), update)[1] for _ in range(2)]
        assert np.array_equal(*steps) is not stochastic
        results.append(steps)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0][0], results[2][0], rtol=0, atol=0.05 * np.abs(results[2][0]).max())
