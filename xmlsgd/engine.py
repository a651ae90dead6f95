"""The loop: the router hands out rows, the executor runs them, the algorithm decides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .checkpoint import Snapshot
from .history import History, Monitor, Record
from .learner import Job, Start
from .optimizers import Adam, Optimizer
from .records import Step
from .router import Router
from .schedules import learning_rate_factor

if TYPE_CHECKING:
    from .algorithms.base import Algorithm
    from .csr import Dataset
    from .executors.base import Executor
    from .network import Network


@dataclass
class Run:
    """What `train` returns: the model float32 (n_params,), one record an epoch, and whether the loss diverged.

    `state` and `steps` are the optimizer's: with them a later run goes on (`Start`).
    """

    params: np.ndarray
    records: list[Record]
    state: np.ndarray
    steps: int
    diverged: bool = False


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` is the model as it is then, with the finished epochs and the optimizer's state."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


def train(
    dataset: Dataset,
    network: Network,
    algorithm: Algorithm,
    executor: Executor,
    *,
    optimizer: Optimizer | None = None,
    epochs: int = 5,
    schedule: str = "linear",
    warm_up: float = 0.02,
    seed: int = 0,
    sample_weight: np.ndarray | None = None,
    start: Start | None = None,
    monitors: Sequence[Monitor] = (),
) -> Run:
    """Train `network` on `dataset` and return the model.

    `start` is where to begin (default: `Network.initialize`). `schedule` and `warm_up` scale the algorithm's rate over
    the rows of the whole run (`schedules.py`). When a loss or a parameter is not finite the run stops with the model of
    the last finished epoch and an optimizer state of zeros.
    """
    executor.start(Job(dataset, network, optimizer or Adam(), seed, sample_weight, start), algorithm.shared)
    before = start.epochs if start else 0
    history, snapshot = History(), Snapshot()
    watching = [*monitors, history]
    clock = Clock(dataset.n_rows * epochs, schedule, warm_up)
    try:
        for monitor in watching:
            monitor.start(dataset.n_rows, epochs, executor.center)
        algorithm.start(executor.workers, executor.center)
        snapshot.keep(executor.center)
        for epoch in range(before, before + epochs):
            loss = _run_epoch(epoch, Router(dataset.n_rows), algorithm, executor, clock, watching)
            # The last update of an epoch shows in no loss, but in the sum of the parameters.
            with np.errstate(all="ignore"):
                finite = math.isfinite(loss) and bool(np.isfinite(executor.center.sum()))
            if not finite:
                snapshot.restore(executor.center)
                state, _ = executor.optimizer_state()
                state[:] = 0
                return Run(executor.center, history.records, state, 0, diverged=True)
            record: Record = {
                "epoch": epoch,
                "rows": clock.rows,
                "seconds": round(executor.now() - clock.paused, 4),
                "loss": loss / dataset.n_rows,
            }
            paused_at = executor.now()
            if epoch + 1 < before + epochs:
                snapshot.keep(executor.center)
            # Everyone sees the epoch, also after one wants to stop.
            votes = [monitor.epoch(record, executor.center) for monitor in watching]
            if any(votes):
                break
            clock.paused += executor.now() - paused_at
        for monitor in watching:
            monitor.finish(executor.center)
        return Run(executor.center, history.records, *executor.optimizer_state())
    except KeyboardInterrupt as interrupt:
        raise Interrupted(Run(executor.center, history.records, *executor.optimizer_state())) from interrupt
    finally:
        snapshot.close()
        executor.close()


@dataclass
class Clock:
    """How far a run is: rows done of `total`, seconds spent outside training, the factor of the rate."""

    total: int
    schedule: str
    warm_up: float
    rows: int = 0
    paused: float = 0.0

    def factor(self, rows: int) -> float:
        """Return the factor of the rate for the next batch of `rows`, taken at its middle."""
        return learning_rate_factor(self.schedule, min((self.rows + rows / 2) / self.total, 1.0), self.warm_up)


def _run_epoch(
    epoch: int, router: Router, algorithm: Algorithm, executor: Executor, clock: Clock, watching: Iterable[Monitor]
) -> float:
    """Run all rows of one epoch once; return the sum of their losses, NaN or infinite when one was."""
    total = 0.0
    while True:
        for w in executor.workers:
            if w in executor.busy or not (size := algorithm.batch_size(w)) or not (span := router.take(size)):
                continue
            rows = span[1] - span[0]
            executor.submit(Step(w, epoch, *span, algorithm.learning_rate(w, rows) * clock.factor(rows)))
            algorithm.submitted(w, rows)
        if not executor.busy:
            return total
        report = executor.wait()
        algorithm.finished(report)
        clock.rows += report.rows
        total += report.loss
        for monitor in watching:
            monitor.step(report)
        if not math.isfinite(report.loss):
            return report.loss
        if algorithm.merge_due(executor.busy):
            algorithm.merge(executor)
