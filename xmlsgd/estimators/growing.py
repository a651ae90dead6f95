"""A model for more features or labels than it was made for; what it learned stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..nn.network import state_layout
from ..nn.parameters import zeros
from ..training.learner import Start

if TYPE_CHECKING:
    from ..data.csr import CSR
    from ..nn.network import Network
    from ..nn.optimizers import Optimizer
    from ..nn.parameters import Layout


def begin(network: Network, optimizer: Optimizer, Y: CSR, seed: int, weight: np.ndarray | None) -> Start:
    """Return a model with starting parameters (`Network.initialize`) and an empty optimizer state."""
    flat = zeros(network.layout.size)
    network.initialize(flat, Y, seed, weight)
    return Start(flat, begin_state(network, optimizer))


def begin_state(network: Network, optimizer: Optimizer) -> np.ndarray:
    """Return an empty optimizer state, float32."""
    return zeros(state_layout(network.layout, optimizer).size)


def grow(
    old: Network, new: Network, optimizer: Optimizer, start: Start, Y: CSR, seed: int, weight: np.ndarray | None
) -> Start:
    """Return the model of `old` as one of `new`, which has more features or labels and is alike otherwise.

    What is new starts as in a new model, its output biases at the frequencies in Y; its optimizer state is zero.
    """
    if old.layout == new.layout:
        return start
    mixed = int(np.random.SeedSequence((seed, old.n_features, new.n_features)).generate_state(1)[0])
    grown = begin(new, optimizer, Y, mixed, weight)
    copy_rows(old.layout, start.params, new.layout, grown.params)
    copy_rows(state_layout(old.layout, optimizer), start.state, state_layout(new.layout, optimizer), grown.state)
    return Start(grown.params, grown.state, start.steps, start.epochs)


def copy_rows(old: Layout, source: np.ndarray, new: Layout, target: np.ndarray) -> None:
    """Copy every tensor of `source` to the first rows of its larger namesake: features and labels are rows."""
    views = new.views(target)
    for name, tensor in old.views(source).items():
        views[name][: len(tensor)] = tensor
