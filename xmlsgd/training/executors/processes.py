"""One process a worker, over one memory-mapped table; only steps and reports cross the pipes.

No lock exists that a dead process could hold. A worker that dies, at its start or later, or is silent for so long that
it must be stopped or stuck, is replaced, a few times; what it had not merged is trained again. With a shared model in
place, part of what it was doing may be in the model already, so that its span counts at least once.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from itertools import count
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

import numpy as np

from ...errors import WorkerDied
from ..messages import Joined, Left, Sharing
from .liveness import Silence
from .wall_clock import OnWallClock
from .worker import WorkerProcess
from .worker_pool import Team

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...devices.base import Device
    from ..learner import Job
    from ..messages import Event, Step


class Processes(OnWallClock):
    """Workers that run at once, one process for each of `makers`, which make their devices and must be picklable.

    n_threads : of each worker, one by default. restarts : how often a run replaces a worker that died; then it goes on
    with fewer, and raises `WorkerDied` when none is left. silence : seconds, > 0, for which a worker may at least say
    nothing before it counts as lost (`silence.py`). one_memory : whether all devices compute in the memory that the
    processes share, which a GPU does not (`Sharing.over`). slowdown : see `Assignment`.
    """

    def __init__(
        self, makers: Sequence[Callable[[], Device]], n_threads: Sequence[int] | None = None,
        slowdown: Sequence[float] | None = None, restarts: int = 3, silence: float = 30.0,
        one_memory: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(len(makers))
        self.team = Team(makers, n_threads, slowdown, restarts)
        self._one_memory = one_memory
        self._silence = Silence(silence, time.perf_counter())
        self.merge_threads = self.push_threads = sum(self.team.n_threads)
        self._messages, self._heard = count(1), dict[int, int]()  # the last message of a worker, by number

    @property
    def failures(self) -> list[str]:
        """Return what became of the workers that died."""
        return self.team.failures

    @property
    def expecting(self) -> bool:
        """Return whether a worker is yet to join, or none is left, which waiting tells."""
        return len(self.team.processes) > len(self.workers) or not self.team.processes

    def start(self, job: Job, sharing: Sharing) -> None:
        """Make the shared table and start the processes."""
        sharing = sharing.over(self._one_memory)
        self._silence = Silence(self._silence.least, time.perf_counter())
        self.concurrent = sharing is Sharing.IN_PLACE
        self.team.assign(job, self._prepare(job, sharing, self.team.make_table(job)), sharing)
        self._await_all()
        self._start_clock()

    def _await_all(self) -> None:
        """Wait until all workers are ready; start another for one that dies, or takes too long beside those that are.

        Raises `WorkerDied` where there may be no other, and where nobody has become ready in time.
        """
        for w in self.workers:
            self._silence.starts(w)
        starting = set(self.workers)
        while starting:
            lost: dict[int, str] = {}
            for process in self._listen(math.inf):
                try:
                    process.receive()
                except (EOFError, OSError):
                    lost[process.worker] = process.fate()
                else:
                    self._silence.heard(process.worker, None)
                    starting.remove(process.worker)
            for w in set(self._silence.overdue()) - lost.keys():
                if starting == set(self.workers):
                    raise WorkerDied(f"worker {w} did not start within {self._silence.start:g} s")
                lost[w] = f"silent for too long, {self.team.processes[w].kill()}"
            for w, reason in lost.items():
                if not self.team.replace(w, reason):
                    raise WorkerDied(f"worker {w} did not start: {reason}")
                self._silence.starts(w)
                starting.add(w)

    def _begin(self, step: Step) -> None:
        with contextlib.suppress(OSError):  # a dead worker: the end of its pipe is the next thing heard of it
            self.team.processes[step.worker].pipe.send(step)
        self._silence.works(step.worker, step.rows)

    def _next(self, until: float | None) -> Event | None:
        while True:
            if not self.team.processes:
                raise WorkerDied(f"no worker is left: {self.team.fates()}")
            ready = self._listen(math.inf if until is None else until - self.now())
            overdue = [w for w in self._silence.overdue() if self.team.processes[w] not in ready]
            event: Event | None = None
            if overdue:
                event = self._bury(self.team.processes[overdue[0]], silent=True)
            elif ready:
                # Who was heard longest ago: else the fast steps of one worker would keep the others waiting.
                event = self._hear(min(ready, key=lambda p: (self._heard.get(p.worker, 0), p.worker)))
            elif until is not None and self.now() >= until:
                return None
            if event is not None:
                return event

    def _listen(self, patience: float) -> list[WorkerProcess]:
        """Return the processes that have something to say within `patience` seconds, or a slice of the silence."""
        processes = {process.pipe: process for process in self.team.processes.values()}
        self._silence.look(time.perf_counter())
        ready = wait(list(processes), min(max(patience, 0.0), self._silence.slice))
        self._silence.look(time.perf_counter())
        return [process for pipe, process in processes.items() if pipe in ready]

    def _hear(self, process: WorkerProcess) -> Event | None:
        """Return what a process has to say; None for the end of one that was not ready yet."""
        self._heard[process.worker] = next(self._messages)
        try:
            report = process.receive()
        except (EOFError, OSError):
            return self._bury(process)
        self._silence.heard(process.worker, report)
        return Joined(process.worker) if report is None else report

    def _bury(self, process: WorkerProcess, silent: bool = False) -> Left | None:
        """Note the end of a process, or make an end of it, and start another in its place if there may be one.

        None where it had not joined.
        """
        w = process.worker
        reason = f"silent for too long, {process.kill()}" if silent else process.fate()
        self._silence.gone(w)
        if self.team.replace(w, reason):
            self._silence.starts(w)
        if w not in self.workers:
            return None
        warnings.warn(f"worker {w} is lost: {reason}; what it had not merged is trained again", stacklevel=2)
        return Left(w, reason)

    def result(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return model, optimizer state and steps, in the arrays of `Job.start` where there are any."""
        params, state, steps = self.learned()
        return *self.team.bring_home(params, state), steps

    def close(self) -> None:
        """End the processes and remove what they share; the table stays readable here."""
        self.team.close()
        self.busy.clear()
