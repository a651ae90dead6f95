"""The threads that all CPU devices of a process share: Numba's, which run `Kernel.threaded`, and those of the BLAS."""

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
from numba.core.compiler_lock import global_compiler_lock
from threadpoolctl import LibController, ThreadpoolController

from ...data.cores import FORKED_FROM_THREADS

SPINCOUNT = "GOMP_SPINCOUNT"  # rounds of the loop in which a thread waits before it sleeps
_WORKQUEUE = threading.Lock()
_WITH_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


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
def launch() -> AbstractContextManager[object]:
    """Return the context in which a kernel may run on Numba's threads.

    Numba's threading layers OpenMP and TBB serve several Python threads at once. Without both, Numba uses its own work
    queue, which ends the process when two Python threads launch kernels at once; there the context is a lock.
    """
    start_layer()  # before asking for its name
    return _WORKQUEUE if numba.threading_layer() == "workqueue" else contextlib.nullcontext()


class BlasPool(NamedTuple):
    """The threads of a BLAS: functions that get and set their number, for the process or for a Python thread."""

    get: Callable[[], int | None]
    put: Callable[[int], object]
    of_process: bool


def pool_of(library: LibController) -> BlasPool:
    """Return the threads of a BLAS that threadpoolctl has found.

    The functions of an OpenBLAS with its own threads are called directly, in a fifth of the time. From 3.8 on,
    threadpoolctl changes the number of threads for one Python thread only, so that the last one to leave could not
    restore it for all. Functions of MKL are called directly, too: threadpoolctl sets its number for the process before
    3.8, and for the Python thread from then on. A BLAS with threads of OpenMP has a number for each Python thread.
    """
    about, symbols = library.info(), library.dynlib
    if about["internal_api"] == "mkl":
        return BlasPool(symbols["MKL_Get_Max_Threads"], symbols["MKL_Set_Num_Threads_Local"], of_process=False)
    if about["internal_api"] == "openblas" and about.get("threading_layer") == "pthreads":
        for name in library.check_symbols:
            if hasattr(symbols, name):
                return BlasPool(symbols[name], symbols[name.replace("_get_", "_set_")], of_process=True)
    of_process = about.get("threading_layer") != "openmp"
    return BlasPool(library.get_num_threads, library.set_num_threads, of_process)


class Limit:
    """Limits pools to one thread while it is entered: the first to enter sets the limit, the last to leave lifts it."""

    def __init__(self) -> None:
        self.inside = 0
        self.before: list[tuple[BlasPool, int]] = []

    def enter(self, pools: list[BlasPool]) -> None:
        """Enter; if this is interrupted, leave again."""
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
        """Leave; the last one restores the numbers of threads."""
        self.inside -= 1
        if not self.inside:
            for pool, n in self.before:
                pool.put(n)


class LimitOfThread(threading.local, Limit):
    """A `Limit` for each Python thread."""


class OneThreadBlas:
    """Limits the BLAS to one thread while any thread is inside.

    The libraries are searched once, as this takes 3 ms, longer than predicting a row.
    """

    def __init__(self) -> None:
        self._lock, self._limit, self._limit_of_thread = threading.Lock(), Limit(), LimitOfThread()
        _WITH_LOCKS.add(self)
        self._of_process: list[BlasPool] | None = None
        self._of_thread: list[BlasPool] = []

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

    def limit_thread(self) -> None:
        """Limit the BLAS of this Python thread for good, if each has its own number; another must be inside."""
        self._limit_of_thread.enter(self._of_thread)


ONE_THREAD_BLAS = OneThreadBlas()


class Alone:
    """A context for one Python thread at a time, with one thread for the BLAS; it can be entered again inside."""

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
    """Record whether the parent had started Numba's threads; replace locks that its other threads held."""
    with contextlib.suppress(ValueError):  # raised if no threading layer was started
        numba.threading_layer()
        FORKED_FROM_THREADS.set()
    for owner in _WITH_LOCKS:
        if owner._lock.acquire(blocking=False):
            owner._lock.release()
        else:
            owner._lock = type(owner._lock)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
    # A fork waits while another thread compiles or loads a kernel; the child would wait for that lock for ever.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )
