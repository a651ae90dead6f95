"""A learner: one device, one replica of the parameters, the network; it runs one batch at a time."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.csr import MASKS, epoch_order
from ..devices.base import Targets
from ..nn.losses import get_loss
from ..nn.network import state_layout
from ..nn.optimizers import Adam
from ..nn.parameters import zeros
from ..nn.samplers import ALL_LABELS, Sampler
from .messages import Report, Sharing, Step

if TYPE_CHECKING:
    from ..data.csr import Dataset
    from ..devices.base import Device
    from ..nn.network import Network
    from ..nn.optimizers import Optimizer, Update
    from .shared_parameters import Table


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
    """What is learned, by what, and from where: everything that a worker needs to make its learner.

    seed : of the first weights, the order of the rows and all that is drawn. sample_weight : float32 (n,), None for
    ones. start : where to begin, None for first weights (`Network.initialize`). sampler : which labels a batch trains.
    """

    dataset: Dataset
    network: Network
    optimizer: Optimizer = field(default_factory=Adam)
    seed: int = 0
    sample_weight: np.ndarray | None = None
    start: Start | None = None
    sampler: Sampler = ALL_LABELS


class Order:
    """The order of the rows of the current epoch."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self._n_rows, self._seed = n_rows, seed
        self._epoch, self._rows = -1, np.empty(0, np.int64)

    def rows(self, step: Step) -> np.ndarray:
        """Return the rows of a step, int64, in the order that (seed, epoch) gives."""
        if step.epoch != self._epoch:
            self._epoch, self._rows = step.epoch, epoch_order(self._n_rows, self._seed, step.epoch)
        return self._rows[step.start : step.stop]


class Learner:
    """Runs the steps of a job on `flat`, float32 (n_params,), with an optimizer state, in place or by copies on a GPU.

    `touched`, uint8 (F + L,), gets a mark for each feature and each label of a batch; None where nobody asks.
    A device with a memory of its own trains copies there. They are made before and written back after each step, or,
    `lazy`, only when `outdate` and `bring` ask for it.
    """

    def __init__(
        self, job: Job, device: Device, flat: np.ndarray, state: np.ndarray | None = None,
        touched: np.ndarray | None = None, lazy: bool = False,
    ) -> None:  # fmt: skip
        layout = state_layout(job.network.layout, job.optimizer)
        self.job, self.device, self.flat, self.touched = job, device, flat, touched
        self.state = zeros(layout.size) if state is None else state
        self._lazy, self._behind, self._ahead = lazy, False, False
        self._placed = [(device.to_device(host), host) for host in (flat, self.state)]
        none = device.to_device(np.zeros((1, 1), np.float32))
        self.layers = job.network.layers(self._placed[0][0], layout.views(self._placed[1][0]), none)
        self.sampler = job.sampler.begin(job.dataset.Y, job.seed)
        self._order = Order(job.dataset.n_rows, job.seed)

    @classmethod
    def of(cls, job: Job, device: Device, table: Table, worker: int, sharing: Sharing, lazy: bool = False) -> Learner:
        """Return the learner of a worker of `table`; a shared model has one state for all.

        One that steps on differences is never lazy: what it copies changes with every step.
        """
        if sharing is Sharing.REPLICAS:
            return cls(job, device, table.params[1 + worker], table.states[worker], table.touched[worker], lazy)
        if sharing is Sharing.IN_PLACE:
            return cls(job, device, table.params[0], table.states[0], lazy=lazy)
        return cls(job, device, table.params[1 + worker], table.states[0])

    def outdate(self) -> None:
        """Copy model and state to the device before the next step: someone has written them."""
        self._behind = True

    def bring(self) -> None:
        """Copy model and state back from the device if they have been trained there since."""
        if self._ahead:
            for placed, host in self._placed:
                self.device.to_host(placed, host)
        self._ahead = False

    def hold(self) -> Any:
        """Return the model in the device's memory, up to date there, to be changed there."""
        if self._behind or not self._lazy:
            for placed, host in self._placed:
                self.device.copy_to_device(placed, host)
        self._behind, self._ahead = False, True
        return self._placed[0][0]

    def warm_up(self) -> None:
        """Compile all kernels that the job needs, so that none compiles on the clock."""
        network = self.job.network
        self.device.warm_up(
            [get_loss(network.loss)], len(network.hidden) > 1, network.hidden_dropout > 0, network.gradient_rounding > 0
        )

    def step(self, step: Step) -> Report:
        """Train on a span, update after update; the loss of the report is the sum over its rows, before the updates.

        A device that computes in the process's memory must have been started.
        """
        with nullcontext() if self.device.memory is None else self.device.start():  # on the device's own stream
            return self._step(step)

    def _step(self, step: Step) -> Report:
        started, loss, nnz = time.perf_counter(), 0.0, 0
        self.hold()
        rows = self._order.rows(step)
        size = step.batch or len(rows)
        with np.errstate(over="ignore", invalid="ignore"):  # the loss tells of a diverged run
            for i, at in enumerate(range(0, len(rows), size), 1):
                batch, seed = rows[at : at + size], _batch_seed(self.job.seed, step.epoch, step.start + at)
                loss += self._update(batch, self.job.optimizer.update(step.learning_rate, step.seen + i), seed)
                nnz += self._nnz(batch)
        loss = float(loss)
        if not self._lazy:
            self.bring()
        return Report(step.worker, len(rows), nnz, loss, time.perf_counter() - started, step.updates)

    def _update(self, rows: np.ndarray, update: Update, seed: int) -> float:
        """Train on one batch; return the sum of the losses of its rows."""
        job = self.job
        X, Y = job.dataset.X, job.dataset.Y
        weight = np.float32(1 / len(rows))
        scale = np.full(len(rows), weight) if job.sample_weight is None else job.sample_weight[rows] * weight
        targets = Targets(Y, rows, scale)
        loss = job.network.step(self.device, self.layers, X, targets, update, seed, self.sampler)
        if self.touched is not None:
            self.touched[X.row_entries(rows)] = 1
            self.touched[job.network.n_features + Y.row_entries(rows)] = 1
        return loss * len(rows)

    def _nnz(self, rows: np.ndarray) -> int:
        """Return the stored features of `rows`."""
        indptr = self.job.dataset.X.indptr
        return int((indptr[rows + 1] - indptr[rows]).sum())


def _batch_seed(seed: int, epoch: int, start: int) -> int:
    """Return the seed of all that a step draws: it names the batch, not who trains it."""
    return int(np.random.SeedSequence((seed, MASKS, epoch, start)).generate_state(1)[0] >> 1)
