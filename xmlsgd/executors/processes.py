"""One process a worker, over one memory-mapped table; only steps and reports cross the pipes.

No lock exists that a dead process could hold. A worker that dies is replaced, a few times; what it had not merged is
trained again. With a shared model in place, part of what it was doing may be in the model already, so that its span
counts at least once.
"""

from __future__ import annotations

import contextlib
import time
from itertools import count
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

import numpy as np

from ..csr import CSR
from ..errors import WorkerDied
from ..records import Joined, Left
from ..table import Table
from .base import Executor
from .mapped import MappedJob
from .run_folder import RunFolder
from .worker import Assignment, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..devices.base import Device
    from ..learner import Job
    from ..records import Event, Sharing, Step
    from ..table import Shape


class Team:
    """The processes of a run, what they share, and how they are started."""

    def __init__(
        self, makers: Sequence[Callable[[], Device]], n_threads: Sequence[int] | None = None,
        slowdown: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        n = len(makers)
        self.makers, self.n_threads, self.slowdown = makers, n_threads or [1] * n, slowdown or [1.0] * n
        self.processes: dict[int, WorkerProcess] = {}
        self.folder: RunFolder | None = None

    def make_table(self, job: Job) -> Callable[[Shape], Table]:
        """Return what makes the table in a folder with room for it and for the job's data."""

        def make(shape: Shape) -> Table:
            weight = 0 if job.sample_weight is None else job.sample_weight.nbytes
            self.folder = RunFolder(4 * shape.floats + _bytes(job.dataset.X) + _bytes(job.dataset.Y) + weight)
            return Table.create(self.folder.path / "table", shape)

        return make

    def assign(self, job: Job, shape: Shape, sharing: Sharing) -> None:
        """Start all processes and wait until they are ready."""
        assert self.folder is not None
        self._start = job.start
        mapped, table = MappedJob.of(job, self.folder.path), self.folder.path / "table"
        self._assignments = [
            Assignment(w, mapped, table, shape, sharing, make, self.n_threads[w], self.slowdown[w])
            for w, make in enumerate(self.makers)
        ]
        for w in range(len(self.makers)):
            self.launch(w)
        for process in self.processes.values():
            try:
                process.receive()
            except (EOFError, OSError):
                raise WorkerDied(f"worker {process.worker} did not start: {process.fate()}") from None

    def launch(self, w: int) -> None:
        """Start the process of worker `w`; it says when it is ready."""
        self.processes[w] = WorkerProcess(self._assignments[w])

    def bring_home(self, params: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return model and optimizer state in memory of this process: the arrays of `Job.start` where there are any.

        Views of the table would hold the memory of all replicas, and be one memory with that of forked processes.
        """
        if self._start is None:
            return np.array(params), np.array(state)
        self._start.params[:], self._start.state[:] = params, state
        return self._start.params, self._start.state

    def close(self) -> None:
        """End the processes and remove what they share."""
        for process in self.processes.values():
            process.close()
        self.processes.clear()
        if self.folder:
            self.folder.close()


class Processes(Executor):
    """Workers that run at once, one process for each of `makers`, which make their devices and must be picklable.

    n_threads : of each worker, one by default. restarts : how often a run replaces a worker that died; then it goes on
    with fewer, and raises `WorkerDied` when none is left. slowdown : see `Assignment`.
    """

    def __init__(
        self, makers: Sequence[Callable[[], Device]], n_threads: Sequence[int] | None = None,
        slowdown: Sequence[float] | None = None, restarts: int = 3,
    ) -> None:  # fmt: skip
        super().__init__(len(makers))
        self.team, self.restarts = Team(makers, n_threads, slowdown), restarts
        self.merge_threads = sum(self.team.n_threads)
        self.failures: list[str] = []
        self._messages, self._heard = count(1), dict[int, int]()  # the last message of a worker, by number

    @property
    def expecting(self) -> bool:
        """Return whether a worker is yet to join, or none is left, which waiting tells."""
        return len(self.team.processes) > len(self.workers) or not self.team.processes

    def start(self, job: Job, sharing: Sharing) -> None:
        """Make the shared table and start the processes."""
        self.team.assign(job, self._prepare(job, sharing, self.team.make_table(job)), sharing)
        self._started = time.perf_counter()

    def _begin(self, step: Step) -> None:
        with contextlib.suppress(OSError):  # a dead worker: the end of its pipe is the next thing heard of it
            self.team.processes[step.worker].pipe.send(step)

    def _next(self, until: float | None) -> Event | None:
        while True:
            if not self.team.processes:
                raise WorkerDied("no worker is left: " + "; ".join(self.failures))
            patience = None if until is None else max(until - self.now(), 0.0)
            ready = wait([process.pipe for process in self.team.processes.values()], patience)
            if not ready:
                return None
            # Who was heard longest ago: with the first each time, fast steps of one worker would keep others waiting.
            heard = [p for p in self.team.processes.values() if p.pipe in ready]
            process = min(heard, key=lambda p: (self._heard.get(p.worker, 0), p.worker))
            self._heard[process.worker] = next(self._messages)
            try:
                report = process.receive()
            except (EOFError, OSError):
                left = self._bury(process)
                if left.worker in self.workers:
                    return left
                continue
            return Joined(process.worker) if report is None else report

    def _bury(self, process: WorkerProcess) -> Left:
        """Note the death of a process and start another in its place if there may be one."""
        reason = process.fate()
        self.failures.append(f"worker {process.worker}: {reason}")
        process.close()
        if len(self.failures) <= self.restarts:
            self.team.launch(process.worker)
        else:
            del self.team.processes[process.worker]
        return Left(process.worker, reason)

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._started

    def result(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return model, optimizer state and steps, in the arrays of `Job.start` where there are any."""
        params, state, steps = super().result()
        return *self.team.bring_home(params, state), steps

    def close(self) -> None:
        """End the processes and remove what they share; the table stays readable here."""
        self.team.close()
        self.busy.clear()


def _bytes(rows: CSR) -> int:
    """Return the bytes of the arrays of `rows`."""
    return rows.indptr.nbytes + rows.indices.nbytes + rows.data.nbytes
