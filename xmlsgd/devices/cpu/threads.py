"""Threads of this process that CPUs share: Numba's, which run `Kernel.threaded`, and those of the BLAS."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numba
import scipy.linalg.cython_blas  # noqa: F401  the BLAS of Numba's np.dot: loaded now, so that it can be limited
from threadpoolctl import LibController, ThreadpoolController

from ...data.cores import FORKED_FROM_THREADS

SPINCOUNT = "GOMP_SPINCOUNT"  # turns of the loop in which a thread waits before it sleeps
_WORKQUEUE = threading.Lock()
_WITH_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


@functools.cache
def start_layer() -> None:
    """Start Numba's threads, which sleep soon when they have nothing to do.

    GNU's OpenMP would have them wait in a loop for milliseconds: on a machine that others use, too, `fit` took three to
    nine times as long (docs/decisions/workers.md). It reads variables when it is loaded; those that are set count.
    """
    is_set = any(name in os.environ for name in ("OMP_WAIT_POLICY", SPINCOUNT))
    if not is_set:
        os.environ[SPINCOUNT] = "10000"
    try:
        numba.get_num_threads()
    finally:
        if not is_set:
            del os.environ[SPINCOUNT]


@functools.cache
def launch() -> AbstractContextManager[object]:
    """Return what to hold while a kernel runs on Numba's threads.

    Its layers OpenMP and TBB serve several Python threads at once; its own work queue, the fallback where neither is
    installed, ends the process when two launch at once, so there they take turns.
    """
    start_layer()  # so that its name is known
    return _WORKQUEUE if numba.threading_layer() == "workqueue" else contextlib.nullcontext()


class Pool(NamedTuple):
    """The threads of a BLAS, of the process or of the Python thread that asks: how many, and how to have others."""

    get: Callable[[], int | None]
    put: Callable[[int], object]
    of_process: bool


def pool_of(library: LibController) -> Pool:
    """Return the threads of a BLAS that threadpoolctl has found.

    An OpenBLAS with threads of its own is asked itself: threadpoolctl, from 3.8 on, lets a single Python thread change
    their number, so that one that leaves last could not restore it. It also takes a fifth of the time. So is MKL, whose
    number threadpoolctl sets for the process before 3.8 and for the Python thread from then on. With OpenMP's threads
    the number is OpenMP's, and the Python thread's.
    """
    about, symbols = library.info(), library.dynlib
    if about["internal_api"] == "mkl":
        return Pool(symbols["MKL_Get_Max_Threads"], symbols["MKL_Set_Num_Threads_Local"], of_process=False)
    if about["internal_api"] == "openblas" and about.get("threading_layer") == "pthreads":
        for name in library.check_symbols:
            if hasattr(symbols, name):
                return Pool(symbols[name], symbols[name.replace("_get_", "_set_")], of_process=True)
    of_process = about.get("threading_layer") != "openmp"
    return Pool(library.get_num_threads, library.set_num_threads, of_process)


class Limit:
    """One thread for some pools, while anybody is inside: the first one in sets it, the last one out restores it."""

    def __init__(self) -> None:
        self.inside = 0
        self.before: list[tuple[Pool, int]] = []

    def enter(self, pools: list[Pool]) -> None:
        """Count one more; set the number. What is set is restored where that is interrupted."""
        if not self.inside:
            self.before = [(pool, n) for pool in pools if (n := pool.get() or 1) > 1]
        self.inside += 1
        try:
            for pool, _ in self.before if self.inside == 1 else ():
                pool.put(1)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Count one less; restore the number."""
        self.inside -= 1
        if not self.inside:
            for pool, n in self.before:
                pool.put(n)


class LimitOfThread(threading.local, Limit):
    """A `Limit` for each Python thread."""


class OneThreadBlas:
    """Keeps the BLAS at one thread while anybody is inside.

    The libraries are looked for once: finding them takes 3 ms, more than a row of prediction.
    """

    def __init__(self) -> None:
        self._lock, self._limit, self._limit_of_thread = threading.Lock(), Limit(), LimitOfThread()
        _WITH_LOCKS.add(self)
        self._of_process: list[Pool] | None = None
        self._of_thread: list[Pool] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._of_process is None:
                found = ThreadpoolController().select(user_api="blas").lib_controllers
                pools = [pool_of(library) for library in found]
                self._of_process = [pool for pool in pools if pool.of_process]
                self._of_thread = [pool for pool in pools if not pool.of_process]
            self._limit.enter(self._of_process)
            try:
                self._limit_of_thread.enter(self._of_thread)
            except BaseException:
                self._limit.leave()
                raise

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._limit_of_thread.leave()
            self._limit.leave()


ONE_THREAD_BLAS = OneThreadBlas()


class Alone:
    """One user at a time of a device, the BLAS at one thread: a context that may be entered again inside."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _WITH_LOCKS.add(self)

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
    """Note whether the parent had threads of Numba; renew the locks that other threads of it held."""
    with contextlib.suppress(ValueError):  # of a layer that was not started
        numba.threading_layer()
        FORKED_FROM_THREADS.set()
    for owner in _WITH_LOCKS:
        if owner._lock.acquire(blocking=False):
            owner._lock.release()
        else:
            owner._lock = type(owner._lock)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
