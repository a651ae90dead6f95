"""The loop: the router hands out rows, the executor runs them, the algorithm decides."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .csr import epoch_order
from .errors import WorkerDied
from .history import History, Monitor, Record
from .records import Event, Left, Report, Sharing, Step
from .router import Router
from .runs import Run, raise_with
from .snapshot import Snapshot
from .worker_log import WorkerLog

if TYPE_CHECKING:
    from .algorithms.base import Algorithm
    from .executors.base import Executor
    from .learner import Job
    from .schedules import Schedule


def train(
    job: Job, algorithm: Algorithm, executor: Executor, schedule: Schedule, monitors: Sequence[Monitor] = ()
) -> Run:
    """Train the network of `job` on its rows as long as `schedule` says, and return the model.

    `Scorer(job.network, run.params, device)` ranks labels by it, `Measure(test, job.network, device)(run.params)` gives
    P@1, P@3 and P@5.

    The rate of `algorithm` follows the schedule over the rows of the whole run. When a loss or a parameter is not
    finite the run stops with the model of the last finished epoch and an optimizer state of zeros. An error that ends
    the run, a monitor's too, carries what was learned until then (`runs.run_of`).
    """
    with closing(Snapshot()) as snapshot, closing(executor):
        executor.start(job, algorithm.sharing)
        log, history = WorkerLog(executor, algorithm), History()
        watching = [log, history, *monitors]  # a finished epoch counts, whatever becomes of a monitor
        dataset, course = job.dataset, Course(schedule, job.dataset.n_rows)
        before = job.start.epochs if job.start else 0
        for monitor in watching:
            monitor.start(dataset.n_rows, schedule.epochs, executor.center)
        work = algorithm.weigh_rows(dataset)
        algorithm.situation.concurrent = executor.concurrent
        algorithm.start(executor.workers, dataset.n_rows)
        router = Router(0)
        try:
            if algorithm.trial is not None:
                executor.checkpoint()
            snapshot.keep(executor.center)
            for epoch in range(before, before + schedule.epochs):
                router = Router(dataset.n_rows, None if work is None else work_before(work, job.seed, epoch))
                loss = Loop(epoch, router, algorithm, executor, course, watching).run()
                if not _is_finite(loss, executor.center):
                    return _run_before(executor, history, snapshot)
                record: Record = {
                    "epoch": epoch,
                    "first_epoch": before,
                    "rows": course.rows,
                    "seconds": round(executor.now() - course.paused, 6),
                    "loss": loss / dataset.n_rows,
                }
                paused_at = executor.now()
                if epoch + 1 < before + schedule.epochs:
                    snapshot.keep(executor.center)
                # Everyone sees the epoch, also after one wants to stop.
                votes = [monitor.epoch(record, executor.center) for monitor in watching]
                if any(votes):
                    break
                course.paused += executor.now() - paused_at
            for monitor in watching:
                monitor.finish(executor.center)
            return _run_of(executor, history)
        except BaseException as error:
            if not (history.records or router.committed or isinstance(error, KeyboardInterrupt)):
                raise
            raise_with(error, _run_so_far(algorithm, executor, history, snapshot))


def _run_of(executor: Executor, history: History) -> Run:
    """Return what there is when a run ends."""
    params, state, steps = executor.result()
    return Run(params, history.records, state, steps)


def _run_so_far(algorithm: Algorithm, executor: Executor, history: History, snapshot: Snapshot) -> Run:
    """Return what there is when a run ends in the middle of an epoch: nothing of a trial, nothing that diverges."""
    try:
        if algorithm.trial is not None:
            executor.restore()
        if not _is_finite(0.0, executor.center):
            return _run_before(executor, history, snapshot)
        return _run_of(executor, history)
    except Exception:  # noqa: BLE001  a device was lost with the model in its memory
        params, state = np.array(executor.table.params[0]), np.zeros_like(executor.table.states[0])
        snapshot.restore(params)
        return Run(params, history.records, state, 0)


def _is_finite(loss: float, center: np.ndarray) -> bool:
    """Return whether an epoch's loss and model are; its last update shows in no loss, but in the sum of the model."""
    with np.errstate(all="ignore"):
        return math.isfinite(loss) and bool(np.isfinite(center.sum()))


def _run_before(executor: Executor, history: History, snapshot: Snapshot) -> Run:
    """Return what there was before the epoch in which a run has diverged."""
    snapshot.restore(executor.center)
    params, state, _ = executor.result()
    state[:] = 0
    return Run(params, history.records, state, 0, diverged=True)


def work_before(work: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Return the work before each place of an epoch's order, float64 (n_rows + 1,), given that of each row."""
    return np.concatenate([[0.0], np.cumsum(work[epoch_order(len(work), seed, epoch)])])


@dataclass
class Course:
    """How far a run of `n_rows` an epoch is: the rows it has done, and the seconds in which it stood still."""

    schedule: Schedule
    n_rows: int
    rows: int = 0
    paused: float = 0.0

    def factor(self, rows: int) -> float:
        """Return the factor of the rate for the next batch of `rows`, taken at its middle."""
        return self.schedule.factor(min((self.rows + rows / 2) / (self.n_rows * self.schedule.epochs), 1.0))


@dataclass
class Loop:
    """One epoch: every idle worker gets a span, every event is told to the algorithm, merges happen when they are due.

    loss : the sum over the rows whose work is in the shared model, NaN or infinite when one was. open : by worker, the
    reports of work that is not.
    """

    epoch: int
    router: Router
    algorithm: Algorithm
    executor: Executor
    course: Course
    watching: Sequence[Monitor]
    loss: float = 0.0
    open: dict[int, list[Report]] = field(default_factory=dict)

    def run(self) -> float:
        """Train on all rows once; return the sum of their losses."""
        algorithm, executor, router = self.algorithm, self.executor, self.router
        while math.isfinite(self.loss):
            self._hand_out()
            members: Collection[int] = ()
            if executor.busy:
                event = executor.wait(algorithm.deadline())
                algorithm.situation.now = executor.now()
                if event is not None:
                    self._note(event)
                members = algorithm.merge_due(executor.busy)
            elif router.leases:
                members = executor.workers  # the end of the epoch
            elif router.empty:
                return self.loss
            elif (executor.expecting or not executor.workers) and (event := executor.wait()):
                self._note(event)
            else:
                name = type(algorithm).__name__
                raise WorkerDied(f"{name} gives none of the workers {executor.workers} any rows, and no other is left")
            if members and math.isfinite(self.loss):
                self._merge(members)
        # Who is still at work would write over a model that is put back.
        while executor.busy:
            executor.wait()
        return self.loss

    def _hand_out(self) -> None:
        """Give every idle worker its next span."""
        for w in self.executor.workers:
            if w in self.executor.busy or not (size := self.algorithm.batch_size(w)):
                continue
            self.algorithm.situation.left_rows = self.router.left
            count = self.algorithm.updates(w)
            span = self.router.take(w, size, count)
            if span is None:
                return
            rows = span[1] - span[0]
            batch = min(size, rows) if count > 1 else rows  # cut by work, a single batch may have more rows than asked
            rate = self.algorithm.learning_rate(w, batch) * self.course.factor(rows)
            self.executor.submit(Step(w, self.epoch, *span, rate, batch if rows > batch else 0))
            self.algorithm.situation.now = self.executor.now()
            self.algorithm.submitted(w, rows)

    def _note(self, event: Event) -> None:
        """Tell the algorithm what happened."""
        w = event.worker
        if isinstance(event, Report):
            self._finished(event)
        elif isinstance(event, Left):
            lost = self._give_back(w)
            if self.algorithm.trial is None:
                for monitor in self.watching:
                    monitor.lost(lost)
            self.algorithm.left(w)
        else:
            self.algorithm.joined(w)

    def _finished(self, report: Report) -> None:
        """Take a span's work into account; a shared model has it at once, that of a trial nobody sees."""
        w, trial = report.worker, self.algorithm.trial is not None
        self.course.rows += report.rows
        self.open.setdefault(w, []).append(report)
        if math.isfinite(report.loss) or trial:
            self.executor.push(w, self.algorithm.weight(report))
            self.algorithm.finished(report)
        else:
            self.loss = report.loss
        if self.algorithm.sharing is not Sharing.REPLICAS:
            self._commit([w])
        if not trial:
            if any(monitor.reads(report) for monitor in self.watching):
                self.executor.bring_center()
            for monitor in self.watching:
                monitor.step(report)

    def _merge(self, members: Collection[int]) -> None:
        """Merge replicas; what they trained is in the shared model then, unless it was a trial."""
        trial = self.algorithm.trial
        self.algorithm.merge(self.executor, members)
        if trial is None:
            self._commit(members)
        elif self.algorithm.trial != trial:
            for w in list(self.router.leases):
                self._give_back(w)

    def _give_back(self, w: int) -> list[Report]:
        """Take back the rows of a worker whose work is lost; return the reports of what it had done."""
        self.router.give_back(w)
        lost = self.open.pop(w, [])
        self.course.rows -= sum(report.rows for report in lost)
        return lost

    def _commit(self, members: Collection[int]) -> None:
        """Note whose work is in the shared model."""
        self.router.commit(members)
        self.loss += sum(report.loss for w in members for report in self.open.pop(w, []))
