"""One process per worker, over memory-mapped shared parameters; only spans and reports cross the pipes.

No lock exists that a dead process could hold. A worker is lost if its process ends, raises an error or exceeds its
liveness timeout; it is replaced, a few times, and what it had not merged is trained again. If the model is shared in
place, part of the lost span may be in the model already, so that its rows count at least once. What happens to a worker
that hangs:

1. `Liveness.overdue` lists it, `_next` sees that, and `_kill_overdue` kills its process; if the process had ended by
   itself, `_why_lost` says how.
2. `_replace_lost` starts another process by `WorkerPool.replace`, warns, and returns the event `Left`.
3. `Executor.wait` removes the worker; `Epoch` gives its spans back to the router, which leases them to others.
4. The new process says that it is ready; `_receive` returns the event `Joined`, and `wait` adds the worker again.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait

import numpy as np

from ...devices.base import Device
from ...errors import WorkerDied
from ..job import Job
from ..messages import Event, Fetch, Invalidate, Joined, Left, Sharing, Span
from ..shared_parameters import SharedParameters, SharedShape, WorkerArrays
from .base import Executor, Learned
from .liveness import Liveness
from .shared_files import MappedJob, RunFolder, data_arrays, mapped_base
from .worker_process import Assignment, WorkerProcess

PARAMETERS = "parameters"  # file of the shared parameters
# Only for a SIGKILL from outside: that of a stuck worker is reported in other words.
OUT_OF_MEMORY = "probably killed by the out-of-memory killer; use fewer workers"


class WorkerPool:
    """The worker processes of a run: starts them, replaces those that die, and ends them together.

    makers, n_threads : of each worker, the function that makes its device, and its threads. restarts : number of
    processes that may be replaced. failures : how processes died, as text.
    """

    def __init__(
        self, makers: Sequence[Callable[[], Device]], n_threads: Sequence[int] | None = None, restarts: int = 0
    ) -> None:
        self.makers, self.n_threads = makers, n_threads or [1] * len(makers)
        self.restarts, self.failures = restarts, list[str]()
        self.processes: dict[int, WorkerProcess] = {}
        self.folder: RunFolder | None = None

    def make_shared(self, job: Job, shape: SharedShape) -> SharedParameters:
        """Make the shared parameters, in a folder with room for the data of the job, too."""
        written = sum(array.nbytes for array in data_arrays(job).values() if mapped_base(array) is None)
        self.folder = RunFolder(4 * shape.floats + written)
        with self.folder.naming():
            return SharedParameters.create(self.folder.path / PARAMETERS, shape)

    def start(self, job: Job, shape: SharedShape, arrays: Sequence[WorkerArrays]) -> None:
        """Start all processes; `arrays` are the shared arrays that each worker trains."""
        assert self.folder is not None
        self.failures.clear()
        with self.folder.naming():
            mapped, file = MappedJob.of(job, self.folder.path), self.folder.path / PARAMETERS
        self._assignments = [
            Assignment(w, mapped, file, shape, arrays[w], make, self.n_threads[w]) for w, make in enumerate(self.makers)
        ]
        for w in range(len(self.makers)):
            self.launch(w)

    def launch(self, w: int) -> None:
        """Start the process of worker `w`, which sends a message when it is ready."""
        self.processes[w] = WorkerProcess(self._assignments[w])

    def replace(self, w: int, reason: str) -> bool:
        """Record why the process of worker `w` was lost and start another; return False if that is not possible."""
        self.failures.append(f"worker {w}: {reason}")
        lost = self.processes.pop(w)
        lost.close()
        # A process that cannot even be killed may go on writing to its replica.
        if len(self.failures) > self.restarts or not lost.has_ended:
            return False
        try:
            self.launch(w)
        except WorkerDied as error:
            self.failures.append(str(error))
            return False
        return True

    def describe_failures(self) -> str:
        """Return how processes died, each failure once, with the usual cause of a SIGKILL."""
        counts = Counter(self.failures)
        text = "; ".join(f"{failure}, {n} times" if n > 1 else failure for failure, n in counts.items())
        killed = any(failure.endswith(": killed by SIGKILL") for failure in counts)
        return f"{text}; {OUT_OF_MEMORY}" if killed else text

    def close(self) -> None:
        """End the processes and remove the shared files; Ctrl-C is raised when they are gone."""
        try:
            self._close()
        except KeyboardInterrupt:
            self._close()
            raise

    def _close(self) -> None:
        for process in self.processes.values():
            process.dismiss()  # so that all end at the same time
        for process in self.processes.values():
            process.close()
        self.processes.clear()
        if self.folder:
            self.folder.close()


class Processes(Executor):
    """Workers that run concurrently, each in a process.

    Parameters
    ----------
    makers : sequence of callable
        One for each worker; makes its device. Must be picklable.
    n_threads : sequence of int, optional
        Threads of each worker, default 1.
    restarts : int, default=3
        How many workers a run replaces when they die. After that it continues with fewer workers, and raises
        `WorkerDied` when none is left.
    liveness_timeout : float, default=30.0
        Minimum seconds without a message after which a worker counts as lost (`Liveness`).
    shares_memory : sequence of bool, optional
        Whether each device computes in the shared memory of the processes, which GPUs do not; default all.
    """

    concurrent = True

    def __init__(
        self, makers: Sequence[Callable[[], Device]], n_threads: Sequence[int] | None = None, restarts: int = 3,
        liveness_timeout: float = 30.0, shares_memory: Sequence[bool] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(len(makers))
        self.pool = WorkerPool(makers, n_threads, restarts)
        self._shares_memory = [True] * len(makers) if shares_memory is None else shares_memory
        self._liveness = Liveness(liveness_timeout, time.perf_counter())
        self.n_threads = sum(self.pool.n_threads)

    @property
    def expects_workers(self) -> bool:
        """Whether a worker has yet to join, or `wait` will report that none is left."""
        return len(self.pool.processes) > len(self.workers) or not self.pool.processes

    def start(self, job: Job, sharing: Sharing) -> None:
        """Make the shared parameters and start the processes."""
        self._liveness = Liveness(self._liveness.timeout, time.perf_counter())
        self._traceback = ""  # of the first error that a worker raised
        by_worker = [sharing.for_worker(shares_memory) for shares_memory in self._shares_memory]
        shape = self._prepare(job, by_worker)
        self.pool.start(job, shape, self.arrays)
        self._await_all()
        self._start_clock()

    def _make_shared(self, job: Job, shape: SharedShape) -> SharedParameters:
        return self.pool.make_shared(job, shape)

    def _await_all(self) -> None:
        """Wait until all workers are ready, replacing those that die or start too slowly.

        Raises `WorkerDied` if a worker cannot be replaced, or if no worker becomes ready in time.
        """
        for w in self.workers:
            self._liveness.starts(w)
        starting = set(self.workers)
        while starting:
            lost: dict[int, str] = {}
            for process in self._listen(math.inf):
                try:
                    process.receive()
                except (EOFError, OSError, WorkerDied) as error:
                    lost[process.worker] = self._why_lost(process, error)
                else:
                    self._liveness.heard(process.worker, None)
                    starting.remove(process.worker)
            for w in set(self._liveness.overdue()) - lost.keys():
                if starting == set(self.workers):
                    raise WorkerDied(f"worker {w} did not start within {self._liveness.start_timeout:g} s")
                lost[w] = self._kill_overdue(w)
            for w, reason in lost.items():
                if not self.pool.replace(w, reason):
                    raise WorkerDied(f"worker {w} did not start: {reason}", self._traceback)
                self._liveness.starts(w)
                starting.add(w)

    def _begin(self, span: Span) -> None:
        self.pool.processes[span.worker].send(span)
        self._liveness.works(span.worker, span.rows)

    def _next(self, until: float | None) -> Event | None:
        while True:
            if not self.pool.processes:
                raise WorkerDied(f"no worker is left: {self.pool.describe_failures()}", self._traceback)
            ready = self._listen(math.inf if until is None else until - self.now())
            overdue = [w for w in self._liveness.overdue() if self.pool.processes[w] not in ready]
            event: Event | None = None
            if overdue:
                event = self._replace_lost(overdue[0], self._kill_overdue(overdue[0]))
            elif ready:
                event = self._receive(ready[0])
            elif until is not None and self.now() >= until:
                return None
            if event is not None:
                return event
            if until is None and not (self.busy or self.lost or self.expects_workers):
                return None  # the last replacement has died, and the others have nothing to do: nothing will happen

    def _listen(self, seconds: float) -> list[WorkerProcess]:
        """Wait at most `seconds`, or one liveness interval, for messages; return the processes that have one."""
        processes = {process.pipe: process for process in self.pool.processes.values()}
        self._liveness.tick(time.perf_counter())
        ready = wait(list(processes), min(max(seconds, 0.0), self._liveness.interval))
        self._liveness.tick(time.perf_counter())
        return [process for pipe, process in processes.items() if pipe in ready]

    def _receive(self, process: WorkerProcess) -> Event | None:
        """Return the event that a process reports; None if it ended before it was ready."""
        w = process.worker
        # To the end, so that a worker with fast spans does not keep others waiting.
        self.pool.processes[w] = self.pool.processes.pop(w)
        try:
            report = process.receive()
        except (EOFError, OSError, WorkerDied) as error:
            return self._replace_lost(w, self._why_lost(process, error))
        self._liveness.heard(w, report)
        return Joined(w) if report is None else report

    def _why_lost(self, process: WorkerProcess, error: Exception) -> str:
        """Return why a process was lost: the error that it raised, or how it ended."""
        if not isinstance(error, WorkerDied):
            return process.wait_for_end()
        self._traceback = self._traceback or error.traceback
        w = process.worker
        self._record_error(w, WorkerDied(f"worker {w} failed", error.traceback), self.pool.processes)
        return error.what

    def _kill_overdue(self, w: int) -> str:
        """Kill an overdue process; return why it is lost."""
        return f"sent nothing for too long, {self.pool.processes[w].kill()}"

    def _replace_lost(self, w: int, reason: str) -> Left | None:
        """Replace the process of a lost worker if possible; return None if it had not joined yet."""
        self._liveness.lost(w)
        replaced = self.pool.replace(w, reason)
        if replaced:
            self._liveness.starts(w)
        event = self._lost_worker(w, reason, replaced)
        return event if w in self.workers else None

    def _fetch(self, workers: Iterable[int] | None = None, state: bool = True) -> None:
        """Let the processes of GPUs copy their models to the shared parameters, all at the same time.

        A worker whose process ends before its copy is complete is `lost`. Its shared replica is still the one
        that it began from, as if it had done nothing.
        """
        asked = self._on_gpus(workers)
        for process in asked:
            process.send(Fetch(state))
        for process in asked:
            if not process.copied(self._liveness.timeout):
                self.lost.add(process.worker)

    def _invalidate(self, workers: Iterable[int] | None = None, state: bool = True) -> None:
        """Tell processes of GPUs that the shared parameters have been written."""
        for process in self._on_gpus(workers):
            process.send(Invalidate(state))

    def _on_gpus(self, workers: Iterable[int] | None) -> list[WorkerProcess]:
        """Return the processes of workers, by default of all, that have a memory of their own and can be reached."""
        found = (w for w in (self.workers if workers is None else workers) if not self._shares_memory[w])
        return [self.pool.processes[w] for w in found if w in self.pool.processes and w not in self.lost]

    def result(self) -> Learned:
        """Return copies of the model and the optimizer state.

        The copies are made in the arrays of `Job.start` if there are any. Views of the shared file would keep the
        memory of all replicas alive, and forked processes would share it.
        """
        learned, start = self.learned(), self._job_start
        if start is None:
            return Learned(np.array(learned.params), np.array(learned.state), learned.updates)
        start.params[:], start.state[:] = learned.params, learned.state
        return Learned(start.params, start.state, learned.updates)

    def close(self) -> None:
        """End the processes and remove the shared files; the parameters stay readable here."""
        self.pool.close()
        self.busy.clear()
