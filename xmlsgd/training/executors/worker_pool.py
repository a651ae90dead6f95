"""The worker processes of a run: started, replaced when they die, and ended together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ...devices.base import Device
from ...errors import WorkerDied
from ..learner import Job
from ..shared_parameters import Shape, Table, WorkerArrays
from .shared_files import MappedJob, RunFolder, data_arrays
from .worker_process import Assignment, WorkerProcess

# Only for a SIGKILL from outside: that of a stuck worker is reported in other words.
OUT_OF_MEMORY = "probably killed by the out-of-memory killer; use fewer workers"


class WorkerPool:
    """One process for each of `makers`, which make the devices.

    restarts : number of processes that may be replaced. failures : how processes died, as text.
    """

    def __init__(
        self, makers: Sequence[Callable[[], Device]], n_threads: Sequence[int] | None = None, restarts: int = 0
    ) -> None:
        self.makers, self.n_threads = makers, n_threads or [1] * len(makers)
        self.restarts, self.failures = restarts, list[str]()
        self.processes: dict[int, WorkerProcess] = {}
        self.folder: RunFolder | None = None

    def make_table(self, job: Job) -> Callable[[Shape], Table]:
        """Return a function that makes the table, in a folder with room for it and for the data of the job."""

        def make(shape: Shape) -> Table:
            self.folder = RunFolder(4 * shape.floats + sum(array.nbytes for array in data_arrays(job).values()))
            with self.folder.naming():
                return Table.create(self.folder.path / "table", shape)

        return make

    def start(self, job: Job, shape: Shape, arrays: Sequence[WorkerArrays]) -> None:
        """Start all processes, given the arrays of the table that each trains."""
        assert self.folder is not None
        self.failures.clear()
        with self.folder.naming():
            mapped, table = MappedJob.of(job, self.folder.path), self.folder.path / "table"
        self._assignments = [
            Assignment(w, mapped, table, shape, arrays[w], make, self.n_threads[w])
            for w, make in enumerate(self.makers)
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
        if len(self.failures) > self.restarts or not lost.dead:
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
        told = "; ".join(f"{failure}, {n} times" if n > 1 else failure for failure, n in counts.items())
        killed = any(failure.endswith(": killed by SIGKILL") for failure in counts)
        return f"{told}; {OUT_OF_MEMORY}" if killed else told

    def close(self) -> None:
        """End the processes and remove the shared files."""
        for process in self.processes.values():
            process.dismiss()  # so that all end at the same time
        for process in self.processes.values():
            process.close()
        self.processes.clear()
        if self.folder:
            self.folder.close()
