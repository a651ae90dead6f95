"""The job of a run: dataset, network, optimizer, sampler and seed, and the model from which it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..data.csr import Dataset, check_csr
from ..data.validation import at_least, check_fields
from ..errors import DataError, shorten
from ..nn.network import Network, state_layout
from ..nn.optimizers import Adam, Optimizer
from ..nn.samplers import ALL_LABELS, Sampler


@dataclass(frozen=True, eq=False)
class Start:
    """The model and optimizer state that a run starts from. A single learner changes both in place.

    Attributes
    ----------
    params : ndarray of shape (n_params,), float32
        The model.
    state : ndarray, float32
        The optimizer state (`state_layout`).
    updates : int, default=0
        Updates so far, for Adam's bias correction.
    epochs : int, default=0
        Epochs so far, for the order of the rows.
    origin : ndarray of shape (n_params,), float32, optional
        Another array with the same values as `params`, which nobody changes. If given, it is what the run rolls back
        to, so that no copy has to be made.
    """

    params: np.ndarray
    state: np.ndarray
    updates: int = 0
    epochs: int = 0
    origin: np.ndarray | None = None


@dataclass(frozen=True)
class Job:
    """A training job: everything that a worker needs to make its learner.

    Attributes
    ----------
    dataset : Dataset
        The training rows.
    network : Network
        The network to train.
    optimizer : Optimizer, default=Adam()
        Turns gradients into updates.
    seed : int, default=0
        Seed of the initial weights, the order of the rows and all random draws.
    sample_weight : ndarray of shape (n_rows,), float32, optional
        Weights of the rows; None for ones.
    start : Start, optional
        Where to start; None for initial weights (`Network.initialize`).
    sampler : Sampler, default=ALL_LABELS
        Chooses the labels that a batch trains.
    """

    dataset: Dataset
    network: Network
    optimizer: Optimizer = field(default_factory=Adam)
    seed: int = at_least(0, 0)
    sample_weight: np.ndarray | None = None
    start: Start | None = None
    sampler: Sampler = ALL_LABELS

    def check(self) -> None:
        """Raise `DataError` if a part is invalid, or does not fit the others; reads every entry of the rows once."""
        check_fields(self)
        dataset, network = self.dataset, self.network
        if dataset.n_rows < 1:
            raise DataError("dataset: must have at least one row, got none")
        # Kernels check no bounds.
        check_csr(dataset.X, "dataset: X")
        check_csr(dataset.Y, "dataset: Y")
        if network.n_features < dataset.n_features or network.n_labels < dataset.n_labels:
            needed = f"{dataset.n_features} features and {dataset.n_labels} labels, those of the dataset"
            raise DataError(f"network: must have at least {needed}, got {network.n_features} and {network.n_labels}")
        self._check_weights()
        self._check_start()

    def _check_weights(self) -> None:
        """Raise `DataError` unless each row has a weight that is finite and at least 0."""
        weight, n_rows = self.sample_weight, self.dataset.n_rows
        if weight is None:
            return
        if not isinstance(weight, np.ndarray) or weight.dtype.kind not in "iuf" or weight.shape != (n_rows,):
            raise DataError(f"sample_weight: must be an array of {n_rows} numbers, one a row, got {shorten(weight)}")
        if len(wrong := weight[~((weight >= 0) & (weight < np.inf))]):
            raise DataError(f"sample_weight: must be finite and at least 0, got {wrong[0]}")

    def _check_start(self) -> None:
        """Raise `DataError` unless model and optimizer state of the start have the types and sizes of this job."""
        if self.start is None:
            return
        layout = self.network.layout
        sizes = {"params": layout.size, "state": state_layout(layout, self.optimizer).size}
        for name, size in sizes.items():
            array = getattr(self.start, name)
            if array.dtype != np.float32 or array.shape != (size,) or not array.flags.carray:
                got = f"{array.dtype} {array.shape}{'' if array.flags.carray else ', which is not'}"
                raise DataError(f"start: {name} must be float32 ({size},), contiguous and writable, got {got}")
