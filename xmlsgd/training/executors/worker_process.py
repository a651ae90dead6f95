"""A worker process: receives spans through a pipe, trains them on the shared parameters, sends reports back.

It is started with the coordinator's `sys.path`, and imports neither the caller's script nor modules of the current
folder. It ends when the pipe is closed or the coordinator ends.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError

from ...data.files.temporary import remove_abandoned
from ...devices.base import Device
from ...errors import LOGGER, DataError, WorkerDied, in_one_line
from ..learner import Learner
from ..messages import COPIED, Fetch, Invalidate, Report, Span
from ..shared_parameters import SharedParameters, SharedShape, WorkerArrays
from .shared_files import MappedJob

PROGRAM = f"import sys; sys.path[:] = sys.argv[2:]; from {__name__} import main; main(int(sys.argv[1]))"
PACKAGE_ROOT = str(Path(__file__).parents[3])
# The thresholds that glibc adopts by itself once a process has freed an array of 32 MB. Until then it maps temporary
# arrays again at every update: one of a GPU takes 1.2 ms of the host instead of 0.7 (docs/decisions/gpu.md).
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
GRACE = 10.0  # seconds to finish a span and exit before a worker is killed
PARENT_CHECK = 2.0  # seconds between a worker's checks that its coordinator is alive
CLOSING = 5.0  # seconds within which a killed process ends after the system has closed its pipe
STREAMS = 3  # standard input, output and error have lower descriptors


@dataclass(frozen=True)
class Assignment:
    """What a worker is sent: the job, the file of the shared parameters, its arrays there, and its device."""

    worker: int
    job: MappedJob
    parameters: Path
    shape: SharedShape
    arrays: WorkerArrays
    make_device: Callable[[], Device]
    n_threads: int


class WorkerProcess:
    """The coordinator's side of a worker process.

    Raises `WorkerDied` if the process cannot be started, and `DataError` if the assignment does not pickle.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.worker = assignment.worker
        self._error: WorkerDied | None = None
        try:
            message = ForkingPickler.dumps(assignment)
        except (PicklingError, AttributeError, TypeError) as error:
            raise DataError(f"device, sampler and optimizer of worker processes must pickle, got {error}") from error
        try:
            self._start(assignment)
        except OSError as error:  # out of processes, memory or file descriptors
            where = f"{error.filename}: " if error.filename else ""
            raise WorkerDied(f"worker {self.worker} did not start: {where}{error.strerror}") from error
        with suppress(OSError):  # if the process has ended, the coordinator will see the end of its pipe
            self.pipe.send_bytes(message)

    def _start(self, assignment: Assignment) -> None:
        """Start the process at the other end of a new pipe."""
        if not sys.executable:  # Python is embedded in another program
            raise OSError(errno.ENOENT, "sys.executable names no Python")
        self.pipe, theirs = (_above_streams(end) for end in Pipe())
        threads = str(assignment.n_threads)
        environment = MALLOC | os.environ
        environment |= {"NUMBA_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
        paths = [path for path in sys.path if isinstance(path, str)]
        if PACKAGE_ROOT not in paths:  # found by an import hook, such as that of an editable install
            paths.append(PACKAGE_ROOT)
        with theirs, signals_blocked():
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), *paths],
                env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                # If a stream was closed, its descriptor belongs to another file by now.
                stdout=None if sys.__stdout__ else subprocess.DEVNULL,
                stderr=None if sys.__stderr__ else subprocess.DEVNULL,
            )  # fmt: skip

    def receive(self) -> Report | None:
        """Return the next report, or None from a worker that has become ready.

        Raises `WorkerDied` with the error in one line and its traceback if the worker raised one, `EOFError` or
        `OSError` if the process is gone.
        """
        if self._error is not None:
            raise self._error
        message = self.pipe.recv()
        if isinstance(message, WorkerDied):
            raise message
        return message

    def send(self, message: Span | Fetch | Invalidate) -> None:
        """Send a message; if the process has ended, its coordinator will see the end of its pipe."""
        with suppress(OSError):
            self.pipe.send(message)

    def copied(self, seconds: float) -> bool:
        """Return whether the answer to `Fetch` came within `seconds`; kill a process that gives none.

        A report that comes first is dropped: only a run that is ending sends `Fetch` to a worker that has a span.
        """
        try:
            while self.pipe.poll(seconds):
                message = self.pipe.recv()
                if message == COPIED:
                    return True
                if isinstance(message, WorkerDied):
                    self._error = message  # for `receive`
                    return False
        except (EOFError, OSError):
            return False
        self.kill()
        return False

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def wait_for_end(self) -> str:
        """Wait until the process has ended, kill it if that takes long, and return how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        return self._exit_status() if self.has_ended else self.kill()

    def kill(self) -> str:
        """Kill the process and return how it ended; a process that is stuck in a system call may not end."""
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        return self._exit_status() if self.has_ended else "cannot be killed"

    def _exit_status(self) -> str:
        """Describe the exit code."""
        code = self.process.returncode
        if code >= 0:
            return f"exit code {code}"
        names = {int(number): number.name for number in signal.Signals}
        return f"killed by {names.get(-code, f'signal {-code}')}"

    def close(self) -> None:
        """Let the process end; kill it if it does not."""
        self.dismiss()
        self.wait_for_end()

    def dismiss(self) -> None:
        """Tell the process to end after its span; may be called again."""
        if not self.pipe.closed:
            with suppress(OSError):  # the process has ended
                self.pipe.send(None)
            self.pipe.close()


def _above_streams(pipe: Connection) -> Connection:
    """Move `pipe` above the descriptors of the standard streams; it may have got one of them if a stream was closed."""
    with pipe:
        return Connection(fcntl.fcntl(pipe.fileno(), fcntl.F_DUPFD_CLOEXEC, STREAMS))


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals that end a run in processes that are started in this context.

    A terminal or a job sends these to all its processes. The coordinator ends its workers; if it is gone at once, they
    remove its files.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, folders: list[Path]) -> None:
    """Train the spans of one worker until it is dismissed; append the folder of the run to `folders`."""
    try:
        assignment: Assignment = pipe.recv()
    except (AttributeError, ImportError) as error:
        hint = "worker processes do not import scripts and notebooks; put the class in a module"
        raise DataError(f"{error}; {hint}") from error
    folders.append(assignment.parameters.parent)
    if assignment.worker > 0:  # all workers compile the same kernels; one reports that
        LOGGER.addHandler(logging.NullHandler())
    device = assignment.make_device()
    shared = SharedParameters.open(assignment.parameters, assignment.shape)
    learner = Learner.of(assignment.job.open(), device, shared, assignment.arrays)
    with device.start():
        learner.load_kernels()
        pipe.send(None)
        while (message := pipe.recv()) is not None:
            if isinstance(message, Span):
                pipe.send(learner.train_span(message))
            elif isinstance(message, Fetch):
                learner.fetch(message.state)
                pipe.send(COPIED)
            else:
                learner.invalidate(message.state)


def _end_with_parent(parent: int, folders: list[Path]) -> None:
    """End this process soon after its coordinator, even if a forked child of the coordinator keeps the pipe open."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK)
    _clean_up_after(parent, folders)
    os._exit(1)


def _clean_up_after(parent: int, folders: list[Path]) -> None:
    """Remove the folder of a run whose coordinator was killed; do nothing if it stays alive."""
    until = time.monotonic() + CLOSING
    while os.getppid() == parent:
        if time.monotonic() > until:
            return
        time.sleep(0.01)
    for folder in folders:
        remove_abandoned(folder)


def _is_dismissed(pipe: Connection) -> bool:
    """Return whether the coordinator dismissed this worker before it closed the pipe."""
    with suppress(EOFError, OSError):
        while True:
            if pipe.recv() is None:
                return True
    return False


def main(fd: int) -> None:
    """Serve the coordinator at the other end of the pipe; the signals that end a run are blocked here."""
    parent, folders = os.getppid(), list[Path]()
    with Connection(fd) as pipe:
        try:
            threading.Thread(target=_end_with_parent, args=(parent, folders), daemon=True).start()
            _serve(pipe, folders)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            if not _is_dismissed(pipe):
                _clean_up_after(parent, folders)
        except BaseException as error:  # noqa: BLE001  sent to the coordinator, for which the worker is lost then
            with suppress(OSError):  # the coordinator is gone as well
                pipe.send(WorkerDied(in_one_line(error), traceback.format_exc()))
