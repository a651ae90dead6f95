"""A learner: one device, one replica of the parameters, the network; it runs one batch at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .csr import MASKS, epoch_order
from .network import state_layout
from .params import zeros
from .records import Report, Step

if TYPE_CHECKING:
    from .csr import Dataset
    from .devices.base import Device
    from .network import Network
    from .optimizers import Optimizer


@dataclass(frozen=True, eq=False)
class Start:
    """Where a run begins: a model, and what an earlier run left to go on with.

    params : float32 (n_params,). state : float32, the optimizer's (`state_layout`). A single learner changes both in
    place. steps, epochs : done so far; they set Adam's bias correction and the order of the rows.
    """

    params: np.ndarray
    state: np.ndarray
    steps: int = 0
    epochs: int = 0


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to make its learner. `sample_weight` is float32 (n,) or None for ones."""

    dataset: Dataset
    network: Network
    optimizer: Optimizer
    seed: int = 0
    sample_weight: np.ndarray | None = None
    start: Start | None = None


class Learner:
    """Runs the steps of a job in place on `flat`, float32 (n_params,), with its own optimizer state.

    `state` and `steps` are those to go on with; by default zeros.
    """

    def __init__(
        self, job: Job, device: Device, flat: np.ndarray, state: np.ndarray | None = None, steps: int = 0
    ) -> None:
        layout = state_layout(job.network.layout, job.optimizer)
        self.job, self.device = job, device
        self.state = zeros(layout.size) if state is None else state
        self.layers = job.network.layers(flat, layout.views(self.state))
        self.steps = steps
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def step(self, step: Step) -> Report:
        """Train on one batch; the loss of the report is the sum over its rows, before the update."""
        job, started = self.job, time.perf_counter()
        X, Y = job.dataset.X, job.dataset.Y
        rows = self._rows(step)
        weight = np.float32(1 / len(rows))
        scale = np.full(len(rows), weight) if job.sample_weight is None else job.sample_weight[rows] * weight
        self.steps += 1
        update = job.optimizer.update(step.learning_rate, self.steps)
        seed = _mask_seed(job.seed, step.epoch, step.start)
        loss = job.network.step(self.device, self.layers, X, Y, rows, scale, update, seed)
        nnz = int((X.indptr[rows + 1] - X.indptr[rows]).sum())
        return Report(step.worker, len(rows), nnz, loss * len(rows), time.perf_counter() - started)

    def _rows(self, step: Step) -> np.ndarray:
        """Return the rows of a step, in the order that (seed, epoch) gives."""
        if step.epoch != self._epoch:
            self._epoch, self._order = step.epoch, epoch_order(self.job.dataset.n_rows, self.job.seed, step.epoch)
        return self._order[step.start : step.stop]


def _mask_seed(seed: int, epoch: int, start: int) -> int:
    """Return the seed of a step's dropout masks: it names the batch, not who trains it."""
    return int(np.random.SeedSequence((seed, MASKS, epoch, start)).generate_state(1)[0] >> 1)
