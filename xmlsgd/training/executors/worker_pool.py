"""The processes of a run of several workers: how they are started and replaced, and what they share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ...data.csr import CSR
from ...errors import WorkerDied
from ..messages import Sharing
from ..shared_parameters import Table
from .mapped import MappedJob
from .run_folder import RunFolder
from .worker import Assignment, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...devices.base import Device
    from ..learner import Job
    from ..shared_parameters import Shape

# Of what nobody here does: a worker that is stuck is killed with other words.
KILLED = "the system does that where memory ran out, of which fewer workers take less"


class Team:
    """The processes of a run, what they share, and how they are started.

    restarts : how many of them are started anew. failures : what became of those that died.
    """

    def __init__(
        self, makers: Sequence[Callable[[], Device]], n_threads: Sequence[int] | None = None,
        slowdown: Sequence[float] | None = None, restarts: int = 0,
    ) -> None:  # fmt: skip
        n = len(makers)
        self.makers, self.n_threads, self.slowdown = makers, n_threads or [1] * n, slowdown or [1.0] * n
        self.restarts, self.failures = restarts, list[str]()
        self.processes: dict[int, WorkerProcess] = {}
        self.folder: RunFolder | None = None

    def make_table(self, job: Job) -> Callable[[Shape], Table]:
        """Return what makes the table in a folder with room for it and for the job's data."""

        def make(shape: Shape) -> Table:
            weight = 0 if job.sample_weight is None else job.sample_weight.nbytes
            self.folder = RunFolder(4 * shape.floats + _bytes(job.dataset.X) + _bytes(job.dataset.Y) + weight)
            with self.folder.naming():
                return Table.create(self.folder.path / "table", shape)

        return make

    def assign(self, job: Job, shape: Shape, sharing: Sharing) -> None:
        """Start all processes."""
        assert self.folder is not None
        self.failures.clear()
        self._start = job.start
        with self.folder.naming():
            mapped, table = MappedJob.of(job, self.folder.path), self.folder.path / "table"
        self._assignments = [
            Assignment(w, mapped, table, shape, sharing, make, self.n_threads[w], self.slowdown[w])
            for w, make in enumerate(self.makers)
        ]
        for w in range(len(self.makers)):
            self.launch(w)

    def launch(self, w: int) -> None:
        """Start the process of worker `w`; it says when it is ready."""
        self.processes[w] = WorkerProcess(self._assignments[w])

    def replace(self, w: int, reason: str) -> bool:
        """Note why the process of worker `w` is lost, and start another; return whether there may and can be one."""
        self.failures.append(f"worker {w}: {reason}")
        lost = self.processes.pop(w)
        lost.close()
        # One that does not even die may go on to write its replica, which is nobody else's then.
        if len(self.failures) > self.restarts or not lost.dead:
            return False
        try:
            self.launch(w)
        except WorkerDied as error:
            self.failures.append(str(error))
            return False
        return True

    def fates(self) -> str:
        """Return what became of those that died, each fate once, and what SIGKILL mostly means."""
        counts = Counter(self.failures)
        told = "; ".join(f"{fate}, {n} times" if n > 1 else fate for fate, n in counts.items())
        return f"{told}; {KILLED}" if any(fate.endswith(": killed by SIGKILL") for fate in counts) else told

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
            process.pipe.close()  # all of them leave at once, and none is waited for by itself
        for process in self.processes.values():
            process.close()
        self.processes.clear()
        if self.folder:
            self.folder.close()


def _bytes(rows: CSR) -> int:
    """Return the bytes of the arrays of `rows`."""
    return rows.indptr.nbytes + rows.indices.nbytes + rows.data.nbytes
