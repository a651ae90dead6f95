"""Train the outputs of labels that come with added rows at the rate of `fit`.

The network learns added rows at a low rate, so that it forgets little; new labels would hardly be learned by it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..data.csr import CSR
from ..devices.base import Device, Rounding, Targets
from ..nn.losses import find_loss
from ..nn.network import state_layout
from ..nn.parameters import zeros
from ..nn.samplers.base import Batch
from .defaults import BATCH, CANDIDATE_EPOCHS, auto_rate
from .initial_model import empty_state
from .plan import TrainingPlan
from .training_data import TrainingData


def train_new_outputs(
    plan: TrainingPlan, data: TrainingData, params: NDArray[np.float32], is_new: NDArray[np.bool_], seed: int,
    device: Device,
) -> None:  # fmt: skip
    """Train the output weights and biases of new labels, bool (L,), on all added rows, in place.

    Losses for which the labels of a row compete, such as softmax, would need all outputs; they are left alone.
    """
    network, optimizer, X, Y = plan.network, plan.optimizer, data.all_rows.X, data.all_rows.Y
    if not is_new.any() or find_loss(network.loss).normalized:
        return
    layers, labels, true = network.layers(params), np.flatnonzero(is_new), Y.where(is_new[Y.indices])
    true = CSR(true.indptr, np.searchsorted(labels, true.indices).astype(np.int32), true.data, len(labels))
    part = replace(network, n_features=1, n_labels=len(labels))
    slots = state_layout(part.layout, optimizer).views(empty_state(part, optimizer))
    output, sampler = part.layers(zeros(part.layout.size), slots)[-1], plan.sampler.begin(true, seed)
    output.W[:], output.b[:] = layers[-1].W[labels], layers[-1].b[labels]
    size, rng = min(BATCH, X.n_rows), np.random.default_rng(seed)
    weight = data.row_weights
    order = np.concatenate([rng.permutation(X.n_rows) for _ in range(CANDIDATE_EPOCHS)])
    n_steps = math.ceil(len(order) / size)
    rate, _ = auto_rate(optimizer, size, CANDIDATE_EPOCHS, is_low=False)
    with device.start():
        for i, rows in enumerate(np.array_split(order, n_steps)):
            A = network.hidden_activations(device, layers, X, rows)
            targets = Targets(true, rows, weight[rows] / np.float32(len(rows)))
            drawn = sampler.draw(Batch(true, rows, seed + i, A, output, device))
            update = optimizer.update(rate * (1 - i / n_steps), i + 1).for_output()
            network.output_step(device, A, targets, output, update, Rounding(0.0, 0), drawn)
    layers[-1].W[labels], layers[-1].b[labels] = output.W, output.b
