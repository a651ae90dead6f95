"""The loop: the router hands out rows, the executor runs them, the algorithm decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .checkpoint import Keeper, Place
from .csr import epoch_order
from .epoch import Course, Loop
from .history import History, Monitor, Record
from .router import Router
from .runs import Run, raise_with
from .snapshot import Snapshot
from .worker_log import WorkerLog

if TYPE_CHECKING:
    from .algorithms.base import Algorithm
    from .checkpoint import Checkpoint
    from .executors.base import Executor
    from .learner import Job
    from .schedules import Schedule


def train(
    job: Job,
    algorithm: Algorithm,
    executor: Executor,
    schedule: Schedule,
    monitors: Sequence[Monitor] = (),
    checkpoint: Checkpoint | None = None,
) -> Run:
    """Train the network of `job` on its rows as long as `schedule` says, and return the model.

    `Scorer(job.network, run.params, device)` ranks labels by it, `Measure(test, job.network, device)(run.params)` gives
    P@1, P@3 and P@5.

    The rate of `algorithm` follows the schedule over the rows of the whole run. When a loss or a parameter is not
    finite the run stops with the model of the last finished epoch and an optimizer state of zeros. An error that ends
    the run, a monitor's too, carries what was learned until then (`runs.run_of`). With a `checkpoint` the run goes on
    from what the same run has left there; `DataError` where it is what another run has left.
    """
    with closing(Snapshot()) as snapshot, closing(executor):
        keeper = None if checkpoint is None else Keeper(checkpoint, job, algorithm, schedule)
        if keeper and keeper.saved:
            job = replace(job, start=keeper.saved.start(job))
        executor.start(job, algorithm.sharing)
        running = Running(job, algorithm, executor, schedule, monitors, keeper, snapshot)
        running.start()
        try:
            running.keep_aside()
            while not running.place.ended:
                if not running.epoch():
                    return running.before()
            return running.finish()
        except BaseException as error:
            if not (running.has_learned or isinstance(error, KeyboardInterrupt)):
                raise
            raise_with(error, running.so_far())


@dataclass
class Running:
    """A run under way; `snapshot` has the model of the last finished epoch.

    place : where it is. first_epoch : the number of its first, over all runs of a model.
    """

    job: Job
    algorithm: Algorithm
    executor: Executor
    schedule: Schedule
    monitors: Sequence[Monitor]
    keeper: Keeper | None
    snapshot: Snapshot

    def __post_init__(self) -> None:
        """Begin where the checkpoint says, if there is one."""
        saved = self.keeper.saved if self.keeper else None
        n_rows = self.job.dataset.n_rows
        self.place = saved.place if saved else Place()
        self.course = Course(self.schedule, n_rows, self.place.rows, -self.place.seconds)
        self.router, self.history = Router(0), History()
        # A finished epoch counts, whatever becomes of a monitor.
        self.watching = [WorkerLog(self.executor, self.algorithm), self.history, *self.monitors]
        self.first_epoch = self.job.start.epochs if self.job.start else 0

    @property
    def has_learned(self) -> bool:
        """Return whether something is in the model."""
        return bool(self.history.records or self.router.committed)

    def start(self) -> None:
        """Tell everyone what begins."""
        n_rows, executor = self.job.dataset.n_rows, self.executor
        for monitor in self.watching:
            monitor.start(n_rows, self.schedule.epochs, executor.center)
        if self.keeper and self.keeper.saved:
            self.keeper.saved.tell(self.watching)
        self.work = self.algorithm.weigh_rows(self.job.dataset)
        self.algorithm.situation.concurrent = executor.concurrent
        self.algorithm.start(executor.workers, n_rows)

    def keep_aside(self) -> None:
        """Keep the model to step back to, of a trial with all that goes with it."""
        if self.algorithm.trial is not None:
            self.executor.checkpoint()
        self.snapshot.keep(self.executor.center)

    def epoch(self) -> bool:
        """Train on all rows once, or on what is left of them; return False where the run diverges."""
        number, executor, course = self.first_epoch + self.place.epoch, self.executor, self.course
        n_rows = self.job.dataset.n_rows
        work = None if self.work is None else work_before(self.work, self.job.seed, number)
        self.router = Router(n_rows, work)
        self.router.go_on(self.place.at, self.place.returned)
        keeping = self if self.keeper else None
        loss = Loop(
            number, self.router, self.algorithm, executor, course, self.watching, keeping, self.place.loss
        ).run()
        if not _is_finite(loss, executor.center):
            return False
        record: Record = {
            "epoch": number,
            "first_epoch": self.first_epoch,
            "rows": course.rows,
            "seconds": round(executor.now() - course.paused, 6),
            "loss": loss / n_rows,
        }
        with course.standing_still(executor):
            ended = self._close(record)
        self.place = Place(self.place.epoch + 1, rows=course.rows, seconds=record["seconds"], ended=ended)
        if self.keeper and (ended or self.keeper.due()):
            self._write(self.place)
        return True

    def _close(self, record: Record) -> bool:
        """Show everyone a finished epoch; return whether it was the last."""
        last = self.place.epoch + 1 == self.schedule.epochs
        if not last:
            self.snapshot.keep(self.executor.center)
        # Everyone sees the epoch, also after one wants to stop.
        votes = [monitor.epoch(record, self.executor.center) for monitor in self.watching]
        return last or any(votes)

    def due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        return self.keeper is not None and self.keeper.due()

    def keep(self, loss: float) -> None:
        """Write a checkpoint in the middle of an epoch, unless the run diverges."""
        router, seconds = self.router, self.executor.now() - self.course.paused
        if _is_finite(loss, self.executor.center):
            returned = tuple(router.returned)
            self._write(Place(self.place.epoch, router.at, returned, loss, self.course.rows, seconds))

    def _write(self, place: Place) -> None:
        assert self.keeper is not None
        with self.course.standing_still(self.executor):
            self.keeper.write(place, self.executor, self.history.records, self.watching)

    def finish(self) -> Run:
        """Let monitors see the end; return what there is."""
        for monitor in self.watching:
            monitor.finish(self.executor.center)
        return self._run()

    def so_far(self) -> Run:
        """Return what there is when a run ends in the middle of an epoch: nothing of a trial, nothing that diverges."""
        executor = self.executor
        try:
            if self.algorithm.trial is not None:
                executor.restore()
            return self._run() if _is_finite(0.0, executor.center) else self.before()
        except Exception:  # noqa: BLE001  a device was lost with the model in its memory
            params, state = np.array(executor.table.params[0]), np.zeros_like(executor.table.states[0])
            self.snapshot.restore(params)
            return Run(params, self.history.records, state, 0)

    def before(self) -> Run:
        """Return what there was before the epoch in which a run has diverged."""
        self.snapshot.restore(self.executor.center)
        params, state, _ = self.executor.result()
        state[:] = 0
        return Run(params, self.history.records, state, 0, diverged=True)

    def _run(self) -> Run:
        """Return what there is when a run ends."""
        params, state, steps = self.executor.result()
        return Run(params, self.history.records, state, steps)


def _is_finite(loss: float, center: np.ndarray) -> bool:
    """Return whether an epoch's loss and model are; its last update shows in no loss, but in the sum of the model."""
    with np.errstate(all="ignore"):
        return math.isfinite(loss) and bool(np.isfinite(center.sum()))


def work_before(work: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Return the work before each place of an epoch's order, float64 (n_rows + 1,), given that of each row."""
    return np.concatenate([[0.0], np.cumsum(work[epoch_order(len(work), seed, epoch)])])
