"""The model that a run starts from: initial parameters, or a copy of an earlier model, which may get more labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..data.csr import CSR
from ..nn.network import Network, state_layout
from ..nn.optimizers import Optimizer
from ..nn.parameters import Layout, zeros
from ..training.job import Start
from .fitted import FittedModel
from .plan import TrainingPlan


def initial_start(plan: TrainingPlan, Y: CSR, seed: int, weight: NDArray[np.float32] | None) -> Start:
    """Return a model with initial parameters (`Network.initialize`) and an optimizer state of zeros."""
    flat = zeros(plan.network.layout.size)
    plan.network.initialize(flat, Y, seed, weight)
    return Start(flat, empty_state(plan.network, plan.optimizer))


def empty_state(network: Network, optimizer: Optimizer) -> NDArray[np.float32]:
    """Return an optimizer state of zeros."""
    return zeros(state_layout(network.layout, optimizer).size)


def grown_start(earlier: FittedModel, plan: TrainingPlan, Y: CSR, n_label_rows: int = 0) -> Start:
    """Return a copy of `earlier` as a model of the plan's network, which may have more features and labels.

    New features and labels start as in a new model. The output bias of a label without rows so far starts at its
    frequency among all rows but the last `n_label_rows`, or stays if a label text has taught a higher one. With softmax
    it starts at the label's share of the new rows' labels: from a lower bias, new classes are hardly learned. The
    optimizer state is kept if there is one of the same optimizer.
    """
    old, network, optimizer = earlier.network, plan.network, plan.optimizer
    flat, state = zeros(network.layout.size), empty_state(network, optimizer)
    if old.layout == network.layout:
        start = Start(flat, state, origin=earlier.float_params)
    else:  # output weights of new labels are zero
        start = Start(flat, state)
        mixed = np.random.SeedSequence((earlier.seed, old.n_features, network.n_features)).generate_state(1)
        network.initialize_features(flat, old.n_features, int(mixed[0]))
    copy_rows(old.layout, earlier.float_params, network.layout, start.params)
    n_rows = Y.n_rows - n_label_rows
    counts = Y.span(0, n_rows).column_counts()
    fresh = np.ones(network.n_labels, bool)
    fresh[: old.n_labels] = earlier.label_counts == 0
    biases = network.layout.views(start.params)[network.output_bias]
    found = network.biases_of(counts, earlier.n_samples_seen + n_rows)
    # Without rows, training can only lower a bias. If it is above the bias of a label without rows, a label text
    # has taught it. The number of rows with label texts is known only to the candidate model.
    n_before = earlier.n_samples_seen if earlier.candidates is None else earlier.candidates.knn.Y.n_rows
    known, known_found = biases[: old.n_labels], found[: old.n_labels]
    taught = known > network.biases_of(np.zeros(1), n_before)
    np.maximum(known, known_found, out=known_found, where=taught)
    biases[fresh] = found[fresh]
    if earlier.optimizer is None or earlier.optimizer.name != optimizer.name:
        return replace(start, epochs=earlier.n_epochs)
    layouts = [state_layout(layout, optimizer) for layout in (old.layout, network.layout)]
    copy_rows(layouts[0], earlier.optimizer.state, layouts[1], start.state)
    return replace(start, updates=earlier.optimizer.updates, epochs=earlier.n_epochs)


def copy_rows(old: Layout, source: NDArray[np.float32], new: Layout, target: NDArray[np.float32]) -> None:
    """Copy each tensor of `source` to the first rows of that in `target`, which may have more features and labels."""
    views = new.views(target)
    for name, tensor in old.views(source).items():
        views[name][: len(tensor)] = tensor
