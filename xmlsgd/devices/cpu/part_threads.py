"""Python threads that run parts of a kernel beside the thread that calls it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

from .threads import ONE_THREAD_BLAS

Work = Callable[[], None]


class Helpers:
    """Threads that help one Python thread. They end with it, or with the process, which does not wait for them."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Work | None] = SimpleQueue()
        self._n = 0

    def ask(self, n: int, work: Work) -> None:
        """Let `n` threads do the work as soon as they are free."""
        for _ in range(self._n, n):
            threading.Thread(target=_help, args=(self._tasks,), name="kernels", daemon=True).start()
            self._n += 1
        for _ in range(n):
            self._tasks.put(work)

    def __del__(self) -> None:
        for _ in range(self._n):
            self._tasks.put(None)


def _help(tasks: SimpleQueue[Work | None]) -> None:
    ONE_THREAD_BLAS.limit_thread()
    while (work := tasks.get()) is not None:
        work()
        del work  # it refers to arrays


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.helpers = Helpers()


_OF_THREAD = _OfThread()


def run_parts(kernel: Callable[..., None], n_parts: int, arguments: tuple[Any, ...], n_threads: int) -> None:
    """Call `kernel(part, n_parts, *arguments)` for every part, on this thread and `n_threads` - 1 helpers.

    Each takes another part when it has done one. Helpers that are not awake by then get none, so that this thread waits
    for nobody who has not begun.
    """
    if n_threads == 1:
        for part in range(n_parts):
            kernel(part, n_parts, *arguments)
        return
    parts = iter(range(n_parts))
    begun: list[threading.Event] = []
    errors: list[BaseException] = []

    def work() -> None:
        for part in parts:
            kernel(part, n_parts, *arguments)

    def help_out() -> None:
        ended = threading.Event()
        begun.append(ended)
        try:
            work()
        except BaseException as error:  # noqa: BLE001  the caller raises it
            errors.append(error)
        finally:
            ended.set()

    _OF_THREAD.helpers.ask(n_threads - 1, help_out)
    try:
        work()
    finally:
        _finish(parts, begun)
    if errors:
        raise errors[0]


def _finish(parts: Iterator[int], begun: list[threading.Event]) -> None:
    """Let nobody begin a further part and wait for those who have begun, also if Ctrl-C is pressed, as they write."""
    try:
        for _ in parts:
            pass
        for ended in begun:
            ended.wait()
    except BaseException:
        _finish(parts, begun)
        raise
