"""Numba's threads, which all CPU devices of a process share: starting them, launching kernels on them, forks.

`CPU.start` sets how many of them a device uses, its `n_threads`; `estimators.workers.thread_count` decides the number.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from contextlib import AbstractContextManager
from typing import Any

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock

from ...data.cores import FORKED_FROM_THREADS
from .blas import ONE_THREAD_BLAS, WITH_LOCKS

SPINCOUNT = "GOMP_SPINCOUNT"  # rounds of the loop in which a thread waits before it sleeps
_WORKQUEUE = threading.Lock()


@functools.cache
def start_layer() -> None:
    """Start Numba's threads so that they sleep soon when they have nothing to do.

    By default, threads of GNU OpenMP wait in a loop for milliseconds: on a machine with other load, `fit` took three to
    nine times as long (docs/decisions/workers.md). OpenMP reads its environment variables when it is loaded; if the
    user has set one of them, it is left alone.
    """
    is_set = any(name in os.environ for name in ("OMP_WAIT_POLICY", SPINCOUNT))
    if not is_set:
        os.environ[SPINCOUNT] = "100"
    try:
        numba.get_num_threads()
    finally:
        if not is_set:
            del os.environ[SPINCOUNT]


@functools.cache
def launch_context() -> AbstractContextManager[object]:
    """Return the context in which a kernel may run on Numba's threads.

    Numba's threading layers OpenMP and TBB serve several Python threads at once. Without both, Numba uses its own work
    queue, which ends the process when two Python threads launch kernels at once; there the context is a lock.
    """
    start_layer()  # before asking for its name
    return _WORKQUEUE if numba.threading_layer() == "workqueue" else contextlib.nullcontext()


class OneAtATime:
    """A context for one Python thread at a time, with one thread for the BLAS; it can be entered again inside.

    buffers : those of the device, which belong to the thread inside.
    """

    def __init__(self, buffers: dict[Any, np.ndarray]) -> None:
        self._lock, self._buffers = threading.RLock(), buffers
        WITH_LOCKS.add(self)

    def renew(self) -> None:
        """Take a new lock; drop the buffers, which a kernel was writing to at the fork."""
        self._lock = threading.RLock()
        self._buffers.clear()

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            ONE_THREAD_BLAS.__enter__()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *exception: object) -> None:
        try:
            ONE_THREAD_BLAS.__exit__()
        finally:
            self._lock.release()


def _after_fork() -> None:
    """Record whether the parent had started Numba's threads; release what its other threads held."""
    with contextlib.suppress(ValueError):  # raised if no threading layer was started
        numba.threading_layer()
        FORKED_FROM_THREADS.set()
    for owner in WITH_LOCKS:
        if owner._lock.acquire(blocking=False):
            owner._lock.release()
        else:
            owner.renew()
    ONE_THREAD_BLAS.forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
    # A fork waits while another thread compiles or loads a kernel; the child would wait for that lock for ever.
    acquire, release = global_compiler_lock.acquire, global_compiler_lock.release
    os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)
