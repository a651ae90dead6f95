"""One epoch: hand out rows to idle workers, tell the algorithm of events, merge when it is due."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..algorithms.base import Algorithm
from ..data.validation import is_integer, is_number, is_positive_integer
from ..errors import DataError, WorkerDied, shorten
from .callbacks import Callback
from .checkpoints import CheckpointWriter
from .executors.base import Executor
from .messages import Event, Left, PendingLoss, PendingReports, Report, Sharing, Span
from .progress import TrainingPosition, TrainingProgress
from .router import Router


@dataclass
class Epoch:
    """One pass over the rows.

    Attributes
    ----------
    number : int
        Number of the epoch, counted over all runs of a model.
    start_position : TrainingPosition
        Where the pass begins; later than the first row if a run resumes in the middle of an epoch.
    callbacks : sequence of Callback
        The callbacks of the run.
    loss : float
        Sum of the losses of the rows whose work is in the shared model; not finite once the run diverges.
    uncommitted : dict of int to list of Report
        By worker, reports of work that is not in the shared model yet.
    pending : PendingReports
        Reports of work that is in the shared model, but whose losses are not in `loss` yet.
    rows_before : int
        Rows of all earlier epochs of the run.
    now : float
        Second of the last event.
    """

    number: int
    start_position: TrainingPosition
    router: Router
    algorithm: Algorithm
    executor: Executor
    progress: TrainingProgress
    callbacks: Sequence[Callback]
    writer: CheckpointWriter | None = None
    loss: float = field(init=False)
    uncommitted: dict[int, list[Report]] = field(default_factory=dict, init=False)
    pending: PendingReports = field(default_factory=PendingReports, init=False)
    rows_before: int = field(init=False)
    now: float = field(init=False)

    def __post_init__(self) -> None:
        """Continue from `start_position`."""
        self.loss, self.now = self.start_position.loss, self.executor.now()
        self.router.resume(self.start_position.at, self.start_position.returned)
        self.rows_before = self.progress.rows - (self.router.n_rows - self.router.rows_left)

    def run(self) -> float:
        """Train on all rows once; return the sum of their losses."""
        executor, router = self.executor, self.router
        while math.isfinite(self.loss):
            if not (executor.busy or router.leases):
                self.algorithm.overlap(executor, ())
            must_wait = self._write_due_checkpoint()
            if not must_wait:
                self._hand_out()
            if executor.busy or executor.lost:
                self._wait_for_event()
                self._merge(self.algorithm.merge_due(executor.busy, self.now))
            elif router.leases:  # all rows are trained, not all are merged
                self._merge(executor.workers)
            elif not router.rows_left:
                self._count(self.pending.rest())
                if math.isfinite(self.loss):
                    self._end()
                return self.loss
            else:
                self._wait_for_worker()
        # A worker that is still busy would write over a restored model.
        while executor.busy:
            executor.wait()
        return self.loss

    def _wait_for_event(self) -> None:
        """Let the algorithm merge while workers are busy; then wait for the next event, at most until its deadline."""
        self.algorithm.overlap(self.executor, self.executor.busy)
        event = self.executor.wait(self.algorithm.deadline(self.now))
        self.now = self.executor.now()
        if event is not None:
            self._handle(event)

    def _wait_for_worker(self) -> None:
        """Wait for a worker to take the rows that are left; raise `WorkerDied` if none will come."""
        executor = self.executor
        event = executor.wait() if executor.expects_workers or not executor.workers else None
        if event is None:
            name = type(self.algorithm).__name__
            idle = f"{name} assigned no rows to any live worker, {executor.workers}"
            raise WorkerDied(f"{idle}; its batch_size must be above 0 for one of them")
        self._handle(event)

    def _write_due_checkpoint(self) -> bool:
        """Write a checkpoint if one is due and all work is in the model; return whether it must wait for busy workers.

        Workers are held back until none is busy if the algorithm needs that (`pauses_for_checkpoint`), or if the run
        is to end with this checkpoint. Otherwise their next merge puts all work in the model. During trials, the
        checkpoint holds the model from which they begin.
        """
        if self.writer is None or not self.writer.due():
            return False
        if self.algorithm.trial is not None:
            seconds = self.progress.seconds(self.executor)
            self.writer.write(replace(self.start_position, seconds=seconds), of_snapshot=True)
            return False
        if not self.router.rows_left:
            return False
        if self.executor.busy or self.router.leases:
            return self.algorithm.pauses_for_checkpoint or self.writer.ends
        self._count(self.pending.rest())
        if math.isfinite(self.loss):
            self.writer.write(self._current_position())
        return False

    def _current_position(self) -> TrainingPosition:
        """Return the training position; no worker may be busy."""
        epoch, router, seconds = self.start_position.epoch, self.router, self.progress.seconds(self.executor)
        return TrainingPosition(epoch, router.at, tuple(router.returned), self.loss, self.progress.rows, seconds)

    def _hand_out(self) -> None:
        """Give every idle worker its next span."""
        for w in self.executor.workers:
            if w in self.executor.busy:
                continue
            size = self.algorithm.batch_size(w, self.now)
            self._check("batch_size", is_integer(size) and size >= 0, "a whole number of at least 0", size)
            if not size:
                continue
            updates = self.algorithm.updates_per_span(w, self.router.rows_left, self.executor.writes_in_place(w))
            self._check("updates_per_span", is_positive_integer(updates), "a whole number of at least 1", updates)
            bounds = self.router.take(w, size, updates)
            if bounds is None:
                return
            rows = bounds[1] - bounds[0]
            batch = min(size, rows) if updates > 1 else rows  # cut by cost, one batch may have more rows than asked
            # The schedule follows the rows handed out, to the middle of this span. Following reports would make the
            # learning rate depend on timing.
            given = self.rows_before + self.router.n_rows - self.router.rows_left
            rate = self.algorithm.learning_rate_of(w, batch)
            self._check("learning_rate_of", is_number(rate) and 0 <= rate < math.inf, "a finite rate, at least 0", rate)
            rate *= self.progress.factor(given - rows / 2)
            self.executor.submit(Span(w, self.number, *bounds, rate, batch))
            self.now = self.executor.now()
            self.algorithm.submitted(w, rows, self.now)

    def _check(self, method: str, fits: bool, wanted: str, got: object) -> None:
        """Raise `DataError` if what a method of the algorithm has returned does not fit."""
        if not fits:
            raise DataError(f"{type(self.algorithm).__name__}.{method} must return {wanted}, got {shorten(got)}")

    def _handle(self, event: Event) -> None:
        """Tell the algorithm of an event."""
        w = event.worker
        if isinstance(event, Report):
            self._finished(event)
        elif isinstance(event, Left):
            lost = self._give_back(w)
            if self.algorithm.trial is None:
                for callback in self.callbacks:
                    callback.lost(lost)
            self.algorithm.worker_left(w)
        else:
            self.algorithm.worker_joined(w)

    def _finished(self, report: Report) -> None:
        """Count a finished span. A shared model has its work at once; callbacks do not see spans of a trial."""
        w, trial = report.worker, self.algorithm.trial is not None
        self.progress.rows += report.rows
        self.uncommitted.setdefault(w, []).append(report)
        if trial or isinstance(report.loss, PendingLoss) or math.isfinite(report.loss):
            self.executor.push(w)
            self.algorithm.finished(report)
        else:
            self.loss = float(report.loss)
        if self.algorithm.sharing is not Sharing.REPLICAS:
            self._commit([w])
        if not trial:
            if any(callback.reads(report) for callback in self.callbacks):
                self.executor.fetch_center()
            for callback in self.callbacks:
                callback.span(report)

    def _merge(self, members: Collection[int]) -> None:
        """Merge the replicas of `members`, which commits their work; restore the model at the end of a trial."""
        if not members or not math.isfinite(self.loss):
            return
        idle = set(self.executor.workers) - self.executor.busy
        self._check("merge_due", idle.issuperset(members), f"idle workers, of {sorted(idle)}", members)
        trial = self.algorithm.trial
        self.algorithm.merge(self.executor, members)
        if trial is None:
            self._commit([w for w in members if w not in self.executor.lost])
        elif self.algorithm.trial != trial:
            self.executor.restore_snapshot()
            for w in list(self.router.leases):
                self._give_back(w)

    def _end(self) -> None:
        """Tell the algorithm that the epoch is over; keep the model if trials follow."""
        self.algorithm.end_epoch(self.executor)
        if self.algorithm.trial is not None:
            self.executor.save_snapshot()

    def _give_back(self, w: int) -> list[Report]:
        """Take back the rows of a worker whose work is lost; return the reports of that work."""
        self.router.give_back(w)
        lost = self.uncommitted.pop(w, [])
        self.progress.rows -= sum(report.rows for report in lost)
        return lost

    def _commit(self, members: Collection[int]) -> None:
        """Note that the work of `members` is in the shared model."""
        self.router.commit(members)
        self._count(self.pending.add([report for w in members for report in self.uncommitted.pop(w, [])]))

    def _count(self, committed: Iterable[Sequence[Report]]) -> None:
        """Add up the losses of work that is in the shared model."""
        for reports in committed:
            self.loss += sum(float(report.loss) for report in reports)
