"""One epoch: spans for idle workers, events for the algorithm, merges when they are due."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .errors import WorkerDied
from .records import Event, Left, Report, Sharing, Step

if TYPE_CHECKING:
    from .algorithms.base import Algorithm
    from .executors.base import Executor
    from .history import Monitor
    from .router import Router
    from .schedules import Schedule


@dataclass
class Course:
    """How far a run of `n_rows` an epoch is: the rows it has done, and the seconds in which it stood still."""

    schedule: Schedule
    n_rows: int
    rows: int = 0
    paused: float = 0.0

    @contextmanager
    def standing_still(self, executor: Executor) -> Iterator[None]:
        """Let what happens meanwhile not count."""
        begun = executor.now()
        yield
        self.paused += executor.now() - begun

    def factor(self, rows: int) -> float:
        """Return the factor of the rate for the next batch of `rows`, taken at its middle."""
        return self.schedule.factor(min((self.rows + rows / 2) / (self.n_rows * self.schedule.epochs), 1.0))


class Keeping(Protocol):
    """Writes checkpoints, for which nobody may be in the middle of a step."""

    def due(self) -> bool:
        """Return whether it is time for one."""
        ...

    def keep(self, loss: float) -> None:
        """Write one of an epoch whose rows so far have this loss in sum."""
        ...


@dataclass
class Loop:
    """One epoch: every idle worker gets a span, every event is told to the algorithm, merges happen when they are due.

    loss : the sum over the rows whose work is in the shared model, NaN or infinite when one was. open : by worker, the
    reports of work that is not. keeping : writes checkpoints while nobody is busy.
    """

    epoch: int
    router: Router
    algorithm: Algorithm
    executor: Executor
    course: Course
    watching: Sequence[Monitor]
    keeping: Keeping | None = None
    loss: float = 0.0
    open: dict[int, list[Report]] = field(default_factory=dict)

    def run(self) -> float:
        """Train on all rows once; return the sum of their losses."""
        algorithm, executor, router = self.algorithm, self.executor, self.router
        while math.isfinite(self.loss):
            if not self._stops_to_keep():
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

    def _stops_to_keep(self) -> bool:
        """Write a checkpoint if one is due and all work is in the model; return whether workers shall wait for that.

        Replicas are waited for by nobody: when all are merged is for the algorithm to say.
        """
        if self.keeping is None or self.algorithm.trial is not None or not self.keeping.due():
            return False
        if self.executor.busy or self.router.leases:
            return bool(self.executor.busy) and self.algorithm.sharing is not Sharing.REPLICAS
        self.keeping.keep(self.loss)
        return False

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
