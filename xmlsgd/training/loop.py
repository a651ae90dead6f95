"""The training loop: run epochs, call callbacks, return the trained model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import replace

import numpy as np

from ..algorithms.base import Algorithm
from ..data.csr import epoch_order
from ..nn.parameters import is_finite
from ..nn.schedules import Schedule
from .callbacks import Callback
from .checkpoints import Checkpoint, CheckpointWriter, reserved
from .epoch import Epoch
from .executors.base import Executor
from .history import EpochRecord, History
from .learner import Job
from .progress import TrainingPosition, TrainingProgress
from .rollback import LastGoodModel, NoModel
from .router import Router
from .run import Run, attach_run
from .worker_log import WorkerLog


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
        Number of epochs and course of the learning rate.
    callbacks
        Observers of the run.
    checkpoint
        Where to save the training position. A run that finds its own checkpoint there resumes from it. The checkpoint
        stays when the run is done.
    rolls_back
        Whether the model of each epoch is kept until the next is done. Without, a run that diverges returns parameters
        of no use; on few rows, to keep them takes as long as an epoch.

    Returns
    -------
    Run
        The model and its records. If a loss or a parameter is not finite, the model of the last finished epoch, or of
        the checkpoint if that is later, with an optimizer state of zeros.

    Raises
    ------
    DataError
        If the checkpoint is that of another run, or another run uses it.
    OSError
        If no checkpoint can be written.

    Notes
    -----
    An error that ends the run, also one of a callback, carries what was learned until then (`run.run_of`).
    """
    kept = LastGoodModel() if rolls_back else NoModel()
    with closing(kept) as last_good, closing(executor), reserved(checkpoint):
        writer = None if checkpoint is None else CheckpointWriter(checkpoint, job, algorithm, schedule, callbacks)
        if writer and writer.saved:
            job = replace(job, start=writer.saved.start(job))
        executor.start(job, algorithm.sharing)
        loop = Loop(job, algorithm, executor, schedule, callbacks, writer, last_good)
        loop.start()
        try:
            loop.keep_rollback_model()
            with nullcontext() if writer is None else writer.accepting_requests():
                while not loop.position.ended:
                    if not loop.epoch():
                        return loop.last_good_run()
            return loop.finished_run()
        except BaseException as error:
            if loop.has_learned or isinstance(error, KeyboardInterrupt):
                attach_run(error, loop.partial_run())
            raise


class Loop:
    """A run under way at `position`; `last_good` keeps the model of the last finished epoch."""

    def __init__(
        self, job: Job, algorithm: Algorithm, executor: Executor, schedule: Schedule, callbacks: Sequence[Callback],
        writer: CheckpointWriter | None, last_good: LastGoodModel | NoModel,
    ) -> None:  # fmt: skip
        self.job, self.algorithm, self.executor, self.schedule = job, algorithm, executor, schedule
        self.writer, self.last_good = writer, last_good
        self.position = writer.saved.position if writer and writer.saved else TrainingPosition()
        self.progress = TrainingProgress(schedule, job.dataset.n_rows, self.position.rows, self.position.seconds)
        self.router, self.history = Router(0), History()
        # A finished epoch counts, whatever becomes of a callback.
        self.watching = [WorkerLog(executor, algorithm), self.history, *callbacks]
        self.first_epoch = job.start.epochs if job.start else 0

    @property
    def has_learned(self) -> bool:
        """Return whether something is in the model."""
        return bool(self.history.records or self.router.committed)

    def start(self) -> None:
        """Tell everyone what begins, or goes on."""
        n_rows, executor = self.job.dataset.n_rows, self.executor
        with executor.paused():
            for callback in self.watching:
                callback.start(n_rows, self.schedule.epochs, executor.center)
        if self.writer:
            self.writer.follow(executor, self.progress, self.history, self.watching)
        self.work = self.algorithm.row_work(self.job.dataset)
        self.algorithm.start(executor.workers, n_rows)

    def keep_rollback_model(self) -> None:
        """Keep the model to go back to when the run diverges, and after a trial, with all that goes with it."""
        if self.algorithm.trial is not None:
            self.executor.set_aside()
        if self.job.start is not None and self.job.start.origin is not None:
            self.last_good.refer(self.job.start.origin)
        else:
            self.last_good.keep(self.executor.center)

    def epoch(self) -> bool:
        """Train on all rows once, or on what is left of them; return False where the run diverges."""
        number, n_rows, executor = self.first_epoch + self.position.epoch, self.job.dataset.n_rows, self.executor
        work = None if self.work is None else work_before(self.work, self.job.seed, number)
        self.router = Router(n_rows, work)
        loss = Epoch(
            number, self.position, self.router, self.algorithm, executor, self.progress, self.watching, self.writer,
        ).run()  # fmt: skip
        if not (math.isfinite(loss) and is_finite(executor.center)):  # its last update shows in no loss
            return False
        record: EpochRecord = {
            "epoch": number,
            "first_epoch": self.first_epoch,
            "rows": self.progress.rows,
            "seconds": round(self.progress.seconds(executor), 6),
            "loss": loss / n_rows,
        }
        with executor.paused():
            ended = self._close(record)
        self.position = TrainingPosition(
            self.position.epoch + 1, rows=self.progress.rows, seconds=record["seconds"], ended=ended
        )
        if self.writer and (ended or self.writer.due()):
            self.writer.write(self.position)
        return True

    def _close(self, record: EpochRecord) -> bool:
        """Show a finished epoch to everyone, also after one wants to stop; return whether it was the last."""
        last = self.position.epoch + 1 == self.schedule.epochs
        if not last:
            self.last_good.keep(self.executor.center)
        votes = [callback.epoch(record, self.executor.center) for callback in self.watching]
        return last or any(votes)

    def finished_run(self) -> Run:
        """Let callbacks see the end; return what there is."""
        for callback in self.watching:
            callback.finish(self.executor.center)
        return self._run()

    def partial_run(self) -> Run:
        """Return what there is when a run ends in the middle of an epoch: nothing of a trial, nothing that diverges."""
        executor = self.executor
        try:
            if self.algorithm.trial is not None:
                executor.put_back()
            return self._run() if is_finite(executor.center) else self.last_good_run()
        except Exception:  # noqa: BLE001  a device was lost with the model in its memory
            params, state = np.array(executor.table.params[0]), np.zeros_like(executor.table.states[0])
            self.last_good.restore(params)
            return Run(params, self.history.records, state, 0)

    def last_good_run(self) -> Run:
        """Return the last good model, without a state, of a run that has diverged."""
        self.last_good.restore(self.executor.center)
        params, state, _ = self.executor.result()
        state[:] = 0
        return Run(params, self.history.records, state, 0, diverged=True)

    def _run(self) -> Run:
        """Return what there is when a run ends."""
        params, state, steps = self.executor.result()
        return Run(params, self.history.records, state, steps)


def work_before(work: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Return the work before each place of an epoch's order, float64 (n_rows + 1,), given that of each row."""
    return np.concatenate([[0.0], np.cumsum(work[epoch_order(len(work), seed, epoch)])])
