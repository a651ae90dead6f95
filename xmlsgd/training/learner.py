"""A learner trains one replica of the model on one device, one batch at a time."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..data.random_streams import MASKS, epoch_order
from ..devices.base import Device, Targets
from ..nn.losses import find_loss
from ..nn.network import state_layout
from ..nn.optimizers import Update
from ..nn.parameters import zeros
from .job import Job
from .messages import PendingLoss, Report, Span
from .shared_parameters import SharedParameters, WorkerArrays


class RowOrder:
    """The order of the rows in the current epoch."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self._n_rows, self._seed = n_rows, seed
        self._epoch, self._rows = -1, np.empty(0, np.int64)

    def rows(self, span: Span) -> np.ndarray:
        """Return the rows of a span, int64; the order depends on seed and epoch."""
        if span.epoch != self._epoch:
            self._epoch, self._rows = span.epoch, epoch_order(self._n_rows, self._seed, span.epoch)
        return self._rows[span.start : span.stop]


class DeviceCopy:
    """A vector of the host and its copy in the memory of a device; the same array if the device shares that memory."""

    def __init__(self, device: Device, host: np.ndarray) -> None:
        self._device, self._host = device, host
        self.on_device = device.to_device(host)
        self._host_is_newer, self._device_is_newer = False, False

    def invalidate(self) -> None:
        """Note that the host has written the vector; changes of the copy are dropped."""
        self._host_is_newer, self._device_is_newer = True, False

    def up_to_date(self) -> Any:
        """Return the copy, up to date; the caller may change it."""
        if self._host_is_newer:
            self._device.copy_to_device(self.on_device, self._host)
        self._host_is_newer, self._device_is_newer = False, True
        return self.on_device

    def fetch(self) -> None:
        """Copy the vector back to the host if the copy has been changed."""
        if self._device_is_newer:
            self._device.to_host(self.on_device, self._host)
        self._device_is_newer = False


class Learner:
    """Trains spans of a job's rows on a model and an optimizer state.

    A GPU trains copies of both in its memory. They are copied to the GPU after `invalidate`, and back by `fetch`.

    Parameters
    ----------
    job : Job
        What to train.
    device : Device
        Where the kernels run.
    flat : ndarray of shape (n_params,), float32
        The model.
    state : ndarray, float32, optional
        The optimizer state; None for zeros.
    touched : ndarray of shape (n_features,), uint8, optional
        Set to 1 for each feature of the trained batches.
    pulled : bool, default=False
        Whether the model is pulled from a center before each span; a GPU then copies it to and fro with each span.
    """

    pending_losses = False  # whether the loss of a GPU is read later than its span (`PendingLoss`)

    def __init__(
        self, job: Job, device: Device, flat: np.ndarray, state: np.ndarray | None = None,
        touched: np.ndarray | None = None, pulled: bool = False,
    ) -> None:  # fmt: skip
        layout = state_layout(job.network.layout, job.optimizer)
        self.job, self.device, self.flat, self.touched, self._pulled = job, device, flat, touched, pulled
        self.state = zeros(layout.size) if state is None else state
        self._model = DeviceCopy(device, flat)
        self._state = DeviceCopy(device, self.state)
        none = device.to_device(np.zeros((1, 1), np.float32))
        self.layers = job.network.layers(self._model.on_device, layout.views(self._state.on_device), none)
        self.sampler = job.sampler.begin(job.dataset.Y, job.seed)
        self._order = RowOrder(job.dataset.n_rows, job.seed)

    @classmethod
    def of(cls, job: Job, device: Device, shared: SharedParameters, arrays: WorkerArrays) -> Learner:
        """Return the learner of a worker that trains these shared arrays."""
        touched = None if arrays.touched is None else shared.touched[arrays.touched]
        model, state = shared.params[arrays.params], shared.states[arrays.state]
        return cls(job, device, model, state, touched, arrays.base is not None)

    def invalidate(self, state: bool = True) -> None:
        """Note that the host wrote the model, and with `state` the optimizer state, so that the device copies them."""
        self._model.invalidate()
        if state:
            self._state.invalidate()

    def fetch(self, state: bool = True) -> None:
        """Copy the model, and with `state` the optimizer state, back to the host if the device has trained them."""
        self._model.fetch()
        if state:
            self._state.fetch()

    def device_params(self) -> Any:
        """Return the up-to-date model in the device's memory, which the caller may change."""
        return self._model.up_to_date()

    def load_kernels(self) -> None:
        """Compile all kernels that the job needs before the clock starts."""
        network, optimizer = self.job.network, self.job.optimizer
        deep, dropout, rounding = len(network.hidden) > 1, network.hidden_dropout > 0, network.gradient_rounding > 0
        self.device.load_kernels([find_loss(network.loss)], [optimizer], deep, dropout, rounding)

    def train_span(self, span: Span) -> Report:
        """Train on a span of rows and report. The loss of each row is that before the update of its batch.

        The device must have been started, unless it is a GPU.
        """
        with nullcontext() if self.device.memory is None else self.device.start():  # on the device's own stream
            return self._train_span(span)

    def _train_span(self, span: Span) -> Report:
        started, indptr = time.perf_counter(), self.job.dataset.X.indptr
        loss: Any = 0.0  # in the device's memory
        if self._pulled:
            self._model.invalidate()
        self._model.up_to_date()
        self._state.up_to_date()
        rows = self._order.rows(span)
        size = span.batch or len(rows)
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged run shows in the loss
            for i, at in enumerate(range(0, len(rows), size), 1):
                batch, seed = rows[at : at + size], _batch_seed(self.job.seed, span.epoch, span.start + at)
                loss += self._update(batch, self.job.optimizer.update(span.learning_rate, span.seen + i), seed)
        nnz = int((indptr[rows + 1] - indptr[rows]).sum())
        pending = self.pending_losses and self.device.memory is not None
        found = PendingLoss(self.device.read_later(loss)) if pending else float(loss)
        if self._pulled:
            self._model.fetch()
        return Report(span.worker, len(rows), nnz, found, time.perf_counter() - started, span.updates)

    def _update(self, rows: np.ndarray, update: Update, seed: int) -> float:
        """Train on one batch; return the sum of the losses of its rows."""
        job = self.job
        X, Y = job.dataset.X, job.dataset.Y
        weight = np.float32(1 / len(rows))
        scale = np.full(len(rows), weight) if job.sample_weight is None else job.sample_weight[rows] * weight
        targets = Targets(Y, rows, scale)
        loss = job.network.step(self.device, self.layers, X, targets, update, seed, self.sampler)
        if self.touched is not None:
            self.touched[X.columns_of(rows)] = 1
        return loss * len(rows)


def _batch_seed(seed: int, epoch: int, start: int) -> int:
    """Return the seed of the random draws of a batch; it does not depend on the worker."""
    return int(np.random.SeedSequence((seed, MASKS, epoch, start)).generate_state(1)[0] >> 1)
