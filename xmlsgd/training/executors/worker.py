"""A worker process: takes steps from its pipe, runs them on the mapped table, sends reports back.

Started with a program of its own and the coordinator's `sys.path`, so that it imports neither the caller's script nor
what lies in the current folder. It ends when the pipe does, or its coordinator: no worker outlives it, unless it was
stopped, until it goes on.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError
from typing import TYPE_CHECKING

from ...data.files.compiled import LOGGER
from ...errors import DataError, WorkerDied
from ..learner import Learner
from ..shared_parameters import Table
from .run_folder import remove_abandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...devices.base import Device
    from ..messages import Report, Sharing, Step
    from ..shared_parameters import Shape
    from .mapped import MappedJob

PROGRAM = f"import sys; sys.path[:] = sys.argv[2:]; from {__name__} import main; main(int(sys.argv[1]))"
PACKAGE_ROOT = str(Path(__file__).parents[3])
GRACE = 10.0  # seconds to finish a step and leave, before a worker is killed
ORPHANED = 2.0  # seconds between two looks of a worker at who its parent is
MOMENT = 0.02  # seconds within which a process ends whose pipe has: the system closes its files before
STREAMS = 3  # standard input, output and error have the numbers below


@dataclass(frozen=True)
class Assignment:
    """All that a worker needs to know: which job, which rows of which table, on which device.

    slowdown : every step is made to take that many times as long, to try out unequal workers; 1 for as fast as can be.
    """

    worker: int
    job: MappedJob
    table: Path
    shape: Shape
    sharing: Sharing
    make_device: Callable[[], Device]
    n_threads: int
    slowdown: float = 1.0


class WorkerProcess:
    """The coordinator's end of a worker process; `WorkerDied` where none can be started.

    `DataError` for an assignment that cannot be sent: a device, a sampler or an optimizer that does not pickle.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.worker = assignment.worker
        try:  # before there is a process that would wait for it
            told = ForkingPickler.dumps(assignment)
        except (PicklingError, AttributeError, TypeError) as error:
            raise DataError(f"what worker processes are told must pickle, no lambdas and locks, got {error}") from error
        try:
            self._start(assignment)
        except OSError as error:  # no process, no memory or no file is left to this user
            where = f"{error.filename}: " if error.filename else ""
            raise WorkerDied(f"worker {self.worker} did not start: {where}{error.strerror}") from error
        with suppress(OSError):  # a dead worker: the end of its pipe is the next thing heard of it
            self.pipe.send_bytes(told)

    def _start(self, assignment: Assignment) -> None:
        """Start the process at the other end of a new pipe."""
        if not sys.executable:  # as where another program holds the interpreter
            raise OSError(errno.ENOENT, "sys.executable names no Python")
        self.pipe, theirs = (_above_streams(end) for end in Pipe())
        threads = str(assignment.n_threads)
        environment = os.environ | {
            "NUMBA_NUM_THREADS": threads,
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": "1",
        }
        paths = [path for path in sys.path if isinstance(path, str)]
        if PACKAGE_ROOT not in paths:  # found by an import hook, as in an editable install
            paths.append(PACKAGE_ROOT)
        with theirs, signals_held():
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), *paths],
                env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                # Where these were closed, their numbers are those of files of ours by now.
                stdout=None if sys.__stdout__ else subprocess.DEVNULL,
                stderr=None if sys.__stderr__ else subprocess.DEVNULL,
            )  # fmt: skip

    def receive(self) -> Report | None:
        """Return the next report, None for a worker that has become ready; raise `WorkerDied` for one that failed.

        `EOFError` when the process is gone.
        """
        message = self.pipe.recv()
        if isinstance(message, str):
            raise WorkerDied(f"worker {self.worker} failed", message)
        return message

    def step(self, step: Step) -> Report:
        """Run one step and wait for its report."""
        self.pipe.send(step)
        report = self.receive()
        assert report is not None
        return report

    @property
    def dead(self) -> bool:
        """Return whether the process has ended."""
        return self.process.poll() is not None

    def fate(self) -> str:
        """Return how the process ended; kill one that does not."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
            return self._code()
        return self.kill()

    def kill(self) -> str:
        """Kill the process and return how it ended; one that is stuck in the system may not end at all."""
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        return self._code() if self.dead else "cannot be killed"

    def _code(self) -> str:
        """Return what the exit code means."""
        code = self.process.returncode
        if code >= 0:
            return f"exit code {code}"
        names = {int(number): number.name for number in signal.Signals}
        return f"killed by {names.get(-code, f'signal {-code}')}"

    def close(self) -> None:
        """Let the process end; kill one that does not."""
        self.pipe.close()
        self.fate()


def _above_streams(pipe: Connection) -> Connection:
    """Return `pipe` under a number above those of the standard streams, which it may have where these were closed."""
    with pipe:
        return Connection(fcntl.fcntl(pipe.fileno(), fcntl.F_DUPFD_CLOEXEC, STREAMS))


@contextmanager
def signals_held() -> Iterator[None]:
    """Let processes that are started meanwhile never see the signals that end a run, not even while they import.

    These go to all processes of a terminal or a job. The coordinator ends its workers; should it be gone at once, they
    still have its files to remove.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, folders: list[Path]) -> None:
    """Run the steps of one worker until the pipe ends; note the run's folder in `folders`."""
    try:
        assignment: Assignment = pipe.recv()
    except (AttributeError, ImportError) as error:
        raise DataError(f"worker processes import modules, no script or notebook: put it in a file; {error}") from error
    folders.append(assignment.table.parent)
    if assignment.worker > 0:  # all of them compile the same: one tells it
        logging.getLogger(LOGGER).addHandler(logging.NullHandler())
    device = assignment.make_device()
    learner = Learner.of(
        assignment.job.open(), device, Table.open(assignment.table, assignment.shape), assignment.worker,
        assignment.sharing,
    )  # fmt: skip
    with device.start():
        learner.warm_up()
        pipe.send(None)
        while True:
            report = learner.step(pipe.recv())
            if assignment.slowdown > 1:
                time.sleep((assignment.slowdown - 1) * report.seconds)
                report = replace(report, seconds=assignment.slowdown * report.seconds)
            pipe.send(report)


def _leave_with(parent: int, folders: list[Path]) -> None:
    """End this process soon after its coordinator, of which a forked child may hold the end of the pipe for longer."""
    while os.getppid() == parent:
        time.sleep(ORPHANED)
    _clean_up_after(parent, folders)
    os._exit(1)


def _clean_up_after(parent: int, folders: list[Path]) -> None:
    """Remove the folder of a run whose coordinator was killed; nothing where that lives and has closed the pipe."""
    until = time.monotonic() + MOMENT
    while os.getppid() == parent:
        if time.monotonic() > until:
            return
        time.sleep(MOMENT / 10)
    for folder in folders:
        remove_abandoned(folder)


def main(fd: int) -> None:
    """Serve the coordinator at the other end of the pipe; signals that end a run are for that, and held back here."""
    parent, folders = os.getppid(), list[Path]()
    with Connection(fd) as pipe:
        try:
            threading.Thread(target=_leave_with, args=(parent, folders), daemon=True).start()
            _serve(pipe, folders)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            _clean_up_after(parent, folders)
        except BaseException:  # noqa: BLE001  told to the coordinator, which raises it
            with suppress(OSError):  # unless it is gone as well
                pipe.send(traceback.format_exc())
