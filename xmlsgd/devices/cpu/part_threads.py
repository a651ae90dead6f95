"""Python threads that run parts of a kernel beside the thread that calls it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

from .blas import ONE_THREAD_BLAS

Task = Callable[[], None]


class ThreadPool:
    """Threads that work for one Python thread. They end with it, or with the process, which does not wait for them."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._n_threads = 0

    def submit(self, task: Task, n_threads: int) -> None:
        """Let `n_threads` threads call the task, each as soon as it is free."""
        for _ in range(self._n_threads, n_threads):
            threading.Thread(target=_run_tasks, args=(self._tasks,), name="kernels", daemon=True).start()
            self._n_threads += 1
        for _ in range(n_threads):
            self._tasks.put(task)

    def __del__(self) -> None:
        for _ in range(self._n_threads):
            self._tasks.put(None)


def _run_tasks(tasks: SimpleQueue[Task | None]) -> None:
    """Call tasks until one is None."""
    ONE_THREAD_BLAS.limit_thread()
    while (task := tasks.get()) is not None:
        task()
        del task  # it refers to arrays


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.pool = ThreadPool()


def _renew_pool() -> None:
    _OF_THREAD.pool = ThreadPool()


_OF_THREAD = _OfThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_pool)  # a fork does not copy the threads of the pool


def run_parts(kernel: Callable[..., None], n_parts: int, arguments: tuple[Any, ...], n_threads: int) -> None:
    """Call `kernel(part, n_parts, *arguments)` for every part, on this thread and `n_threads` - 1 of its pool.

    A thread that has done a part takes the next one. The call returns when all parts are done; it does not wait for
    threads of the pool that have not woken up by then.
    """
    if n_threads == 1:
        for part in range(n_parts):
            kernel(part, n_parts, *arguments)
        return
    parts = iter(range(n_parts))
    ended_of_begun: list[threading.Event] = []
    errors: list[BaseException] = []

    def run() -> None:
        for part in parts:
            kernel(part, n_parts, *arguments)

    def run_in_pool() -> None:
        ended = threading.Event()
        ended_of_begun.append(ended)
        try:
            run()
        except BaseException as error:  # noqa: BLE001  the caller raises it
            errors.append(error)
        finally:
            ended.set()

    try:
        _OF_THREAD.pool.submit(run_in_pool, n_threads - 1)
        run()
    finally:
        _finish(parts, ended_of_begun)
    if errors:
        raise errors[0]


def _finish(parts: Iterator[int], ended_of_begun: list[threading.Event]) -> None:
    """Take the parts that are left, and wait for threads that have begun, also after Ctrl-C, as they write results."""
    try:
        for _ in parts:
            pass
        for ended in ended_of_begun:
            ended.wait()
    except BaseException:
        _finish(parts, ended_of_begun)
        raise
