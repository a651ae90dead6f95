"""The training loop: run epochs, call callbacks, return the trained model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..algorithms.base import Algorithm
from ..data.random_streams import epoch_order
from ..nn.parameters import is_finite
from ..nn.schedules import Schedule
from .callbacks import Callback
from .checkpoints import Checkpoint, CheckpointWriter, reserved
from .epoch import Epoch
from .executors.base import Executor
from .history import EpochRecord, History
from .job import Job
from .kept_model import KeptModel, NoModel
from .progress import TrainingPosition, TrainingProgress
from .router import Router
from .worker_log import WorkerEntry, WorkerLog, summary


@dataclass
class Run:
    """The result of `train`.

    Attributes
    ----------
    params : ndarray of shape (n_params,), float32
        The model.
    records : list of dict
        One record per epoch.
    state : ndarray, float32
        The optimizer state, for a later run (`Start`).
    updates : int
        Updates that the optimizer state has seen.
    diverged : bool, default=False
        Whether the loss diverged; `params` is then the last good model.
    """

    params: np.ndarray
    records: list[EpochRecord]
    state: np.ndarray
    updates: int
    diverged: bool = False

    @property
    def workers(self) -> list[WorkerEntry]:
        """Summary of each of several workers (`worker_log.summary`)."""
        return summary(self.records)


def train(
    job: Job,
    algorithm: Algorithm,
    executor: Executor,
    schedule: Schedule,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
    *,
    rolls_back: bool = True,
) -> Run:
    """Train the network of a job and return the model.

    Parameters
    ----------
    job
        Dataset, network, optimizer, sampler and seed.
    algorithm
        How workers learn together. Its learning rate follows the schedule over the rows of the whole run.
    executor
        Where the workers run, and whose clock counts; closed at the end.
    schedule
        Number of epochs, and how the learning rate changes.
    callbacks
        Observers of the run.
    checkpoint
        Where to save the training position. A run that finds its own checkpoint there resumes from it. The checkpoint
        stays when the run is done.
    rolls_back
        Whether to keep a copy of the model after each epoch, to return it if the run diverges. Without it, such a run
        returns useless parameters. On few rows, keeping a copy takes as long as an epoch.

    Returns
    -------
    Run
        The model and its records. If the run diverges (a loss or a parameter is not finite), the model of the last
        finished epoch, or of the checkpoint if that is later, with an optimizer state of zeros.

    Raises
    ------
    DataError
        If the parts of the job do not fit each other, the algorithm needs more workers, the checkpoint is that of
        another run, or another run uses it.
    OSError
        If no checkpoint can be written.

    Notes
    -----
    If an error ends the run, also one raised by a callback, what was learned is attached to it (`run_of`).
    """
    job.check()
    algorithm.check_workers(executor.n_workers)
    kept = KeptModel() if rolls_back else NoModel()
    run: Run | None = None
    try:
        in_use = nullcontext() if checkpoint is None else reserved(checkpoint)
        with closing(kept) as last_good, closing(executor), in_use:
            writer = None if checkpoint is None else CheckpointWriter(checkpoint, job, algorithm, schedule, callbacks)
            if writer and writer.saved:
                job = replace(job, start=writer.saved.start(job))
            executor.start(job, algorithm.sharing)
            run = Loop(job, algorithm, executor, schedule, callbacks, writer, last_good).run()
    except KeyboardInterrupt as error:
        if run is not None:  # Ctrl-C came while workers ended
            attach_run(error, run)
        raise
    return run


class Loop:
    """The state of a run: `position` is where it continues, `last_good` keeps the model of the last finished epoch."""

    def __init__(
        self, job: Job, algorithm: Algorithm, executor: Executor, schedule: Schedule, callbacks: Sequence[Callback],
        writer: CheckpointWriter | None, last_good: KeptModel | NoModel,
    ) -> None:  # fmt: skip
        self.job, self.algorithm, self.executor, self.schedule = job, algorithm, executor, schedule
        self.writer, self.last_good = writer, last_good
        self.position = writer.saved.position if writer and writer.saved else TrainingPosition()
        self.progress = TrainingProgress(schedule, job.dataset.n_rows, self.position.rows, self.position.seconds)
        self.router, self.history = Router(0), History()
        # These come first, so that a finished epoch is recorded even if a callback raises an error.
        self.callbacks = [WorkerLog(executor, algorithm), self.history, *callbacks]
        self.first_epoch = job.start.epochs if job.start else 0

    def run(self) -> Run:
        """Run all epochs and return the result; attach what was learned to an error that ends them."""
        self._start()
        try:
            self._keep_first_model()
            if self.algorithm.trial is not None:
                self.executor.save_snapshot()
            with nullcontext() if self.writer is None else self.writer.accepting_requests():
                while not self.position.ended:
                    if not self._run_epoch():
                        return self._last_good_run()
            return self._finished_run()
        except BaseException as error:
            has_learned = self.history.records or self.router.committed
            if has_learned or isinstance(error, KeyboardInterrupt):
                attach_run(error, self._partial_run())
            raise

    def _start(self) -> None:
        """Start the callbacks and the algorithm; resume the callbacks of a resumed run."""
        n_rows, executor = self.job.dataset.n_rows, self.executor
        with executor.paused():
            for callback in self.callbacks:
                callback.start(n_rows, self.schedule.epochs, executor.center)
        if self.writer:
            self.writer.attach(executor, self.progress, self.history, self.callbacks)
        self.row_costs = self.algorithm.measure_costs(self.job.dataset)
        self.algorithm.start(executor.workers, n_rows)

    def _keep_first_model(self) -> None:
        """Keep the model to roll back to when the first epoch diverges."""
        if self.job.start is not None and self.job.start.origin is not None:
            self.last_good.refer(self.job.start.origin)
        else:
            self.last_good.keep(self.executor.center)

    def _run_epoch(self) -> bool:
        """Train on all rows once, or on those that an interrupted epoch has left; return False if the run diverges."""
        number, n_rows, executor = self.first_epoch + self.position.epoch, self.job.dataset.n_rows, self.executor
        costs = None if self.row_costs is None else costs_before(self.row_costs, self.job.seed, number)
        self.router = Router(n_rows, costs)
        loss = Epoch(
            number, self.position, self.router, self.algorithm, executor, self.progress, self.callbacks, self.writer,
        ).run()  # fmt: skip
        if not (math.isfinite(loss) and is_finite(executor.center)):  # no loss shows the effect of the last update
            return False
        record: EpochRecord = {
            "epoch": number,
            "first_epoch": self.first_epoch,
            "rows": self.progress.rows,
            "seconds": round(self.progress.seconds(executor), 6),
            "loss": loss / n_rows,
        }
        with executor.paused():
            ended = self._end_epoch(record)
        self.position = TrainingPosition(
            self.position.epoch + 1, rows=self.progress.rows, seconds=record["seconds"], ended=ended
        )
        if self.writer and (ended or self.writer.due()):
            self.writer.write(self.position)
        return True

    def _end_epoch(self, record: EpochRecord) -> bool:
        """Pass a finished epoch to all callbacks; return whether it was the last or one of them stops training."""
        last = self.position.epoch + 1 == self.schedule.epochs
        if not last:
            self.last_good.keep(self.executor.center)
        votes = [callback.epoch(record, self.executor.center) for callback in self.callbacks]
        return last or any(votes)

    def _finished_run(self) -> Run:
        """Finish the callbacks and return the result."""
        for callback in self.callbacks:
            callback.finish(self.executor.center)
        return self._current_run()

    def _partial_run(self) -> Run:
        """Return the result of a run that an error ended; trials are undone, and a diverged model is rolled back."""
        executor = self.executor
        try:
            if self.algorithm.trial is not None:
                executor.restore_snapshot()
            return self._current_run() if is_finite(executor.center) else self._last_good_run()
        except Exception:  # noqa: BLE001  a device was lost with the model in its memory
            params, state = np.array(executor.shared.params[0]), np.zeros_like(executor.shared.states[0])
            self.last_good.restore(params)
            return Run(params, self.history.records, state, 0)

    def _last_good_run(self) -> Run:
        """Return the last good model of a run that has diverged, with an optimizer state of zeros."""
        self.last_good.restore(self.executor.center)
        params, state, _ = self.executor.result()
        state[:] = 0
        return Run(params, self.history.records, state, 0, diverged=True)

    def _current_run(self) -> Run:
        """Return the current model and optimizer state, and the records so far."""
        params, state, updates = self.executor.result()
        return Run(params, self.history.records, state, updates)


def costs_before(row_costs: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Return the cost of all rows before each position of an epoch's row order, float64 (n_rows + 1,)."""
    return np.concatenate([[0.0], np.cumsum(row_costs[epoch_order(len(row_costs), seed, epoch)])])


def attach_run(error: Any, run: Run) -> None:
    """Attach the result so far to the error that ended a run."""
    error.run = run


def run_of(error: BaseException) -> Run | None:
    """Return the result attached to the error that ended a run, or None."""
    run = getattr(error, "run", None)
    return run if isinstance(run, Run) else None
