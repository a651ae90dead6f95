"""Worker processes as copies of this one, so that a worker is replaced without a second of imports."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from unittest.mock import patch

from xmlsgd.training.executors import processes, worker_process


class Child:
    """A child process as `subprocess.Popen` shows it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal; None while the process lives."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        """Wait until the process has ended."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("worker", timeout)
            time.sleep(0.0002)
        return code

    def kill(self) -> None:
        """Kill the process."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkedWorker(worker_process.WorkerProcess):
    """The coordinator's side of a worker that is forked; all else is as usual."""

    def _start(self, assignment: worker_process.Assignment) -> None:
        self.pipe, theirs = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of threads that go on here
            pid = os.fork()
        if pid:
            theirs.close()
            self.process = Child(pid)  # type: ignore[assignment]
            return
        try:
            kept = theirs.fileno()
            os.closerange(3, kept)  # the pipes of other workers would not end with their processes
            os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX") if kept > 4096 else 4096)
            worker_process.main(kept)
        finally:
            os._exit(0)


@contextmanager
def forked_workers() -> Iterator[None]:
    """Let runs fork their workers, which must run no kernels if this process has started threads of kernels."""
    with patch.object(processes, "WorkerProcess", ForkedWorker):
        yield
