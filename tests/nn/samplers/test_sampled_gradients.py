"""The gradient of drawn labels, in expectation over the draws, against that of all labels."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd.data.csr import CSR
from xmlsgd.devices.base import Targets
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.samplers import ALL_LABELS
from xmlsgd.nn.samplers.uniform import UniformNegatives

N_LABELS, N_ROWS, BATCH = 40, 200, 8
NETWORK = Network(3, N_LABELS, (2,))
X = CSR.from_scipy(sp.csr_array(np.random.default_rng(0).random((N_ROWS, 3), np.float32)))
ROWS_OF = {0: 100, 1: 40, 2: 10, 3: 2}  # label -> rows that have it
Y = CSR.from_scipy(
    sp.csr_array(np.arange(N_ROWS)[:, None] < [ROWS_OF.get(j, 0) for j in range(N_LABELS)], dtype=np.float32)
)


def gradients(start, sampler, batches):
    """Return the mean gradients of the output layer's biases and of all parameters over (seed, rows) of batches."""
    device, total = Reference(), np.zeros(NETWORK.layout.size)
    for seed, rows in batches:
        params = start.copy()
        targets = Targets(Y, rows, np.full(len(rows), 1 / len(rows), np.float32))
        NETWORK.step(device, NETWORK.layers(params), X, targets, SGD().update(1.0, 1), seed, sampler)
        total += start - params
    return NETWORK.layout.views(total / len(batches))


@pytest.mark.parametrize("negatives", [0, 12])
def test_in_expectation_a_gradient_is_that_of_all_labels_times_their_chances_of_being_drawn(negatives):
    rows = np.array([5, 150])  # the first has the labels 0 to 2
    start = np.random.default_rng(0).standard_normal(NETWORK.layout.size).astype(np.float32)
    of_all, of_true, found = (
        gradients(start, sampler, [(seed, rows) for seed in range(draws)])
        for sampler, draws in ((ALL_LABELS, 1), (UniformNegatives(0), 1), (UniformNegatives(negatives), 1500))
    )
    chance = 1 - (1 - 1 / N_LABELS) ** negatives
    for name in ("W1", "b1", "W0"):
        expected = of_true[name] + chance * (of_all[name] - of_true[name])
        np.testing.assert_allclose(found[name], expected, atol=0.03 * np.abs(of_all[name]).max())


def test_labels_that_other_rows_of_a_batch_seldom_have_get_higher_logits():
    """Not divided by its chance of being drawn, an equilibrium is higher by the logarithm of that chance's inverse."""
    rng, start = np.random.default_rng(1), np.zeros(NETWORK.layout.size, np.float32)
    batches = [(seed, rng.choice(N_ROWS, BATCH, replace=False)) for seed in range(1500)]
    share = np.array([n / N_ROWS for n in ROWS_OF.values()])
    others = np.array([comb(N_ROWS - 1 - n, BATCH - 1) / comb(N_ROWS - 1, BATCH - 1) for n in ROWS_OF.values()])
    chance = 1 - others * (1 - 1 / N_LABELS) ** 4  # where the label is not true
    exact = np.log(share / (1 - share))
    biases = NETWORK.layout.views(start)["b1"]
    for shift, sampler in ((0.0, ALL_LABELS), (-np.log(chance), UniformNegatives(4))):
        biases[:4] = exact + shift
        np.testing.assert_allclose(gradients(start, sampler, batches)["b1"][:4], 0, atol=5e-3)
    assert -np.log(chance[0]) < 0.01 < 1.5 < -np.log(chance[3])
