"""Limit the threads of the BLAS, which kernels call for products of matrices, to one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import scipy.linalg.cython_blas  # noqa: F401  the BLAS of Numba's np.dot: loaded now, so that it can be limited
from threadpoolctl import LibController, ThreadpoolController

WITH_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()  # objects that are renewed after a fork if their `_lock` was held


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
        WITH_LOCKS.add(self)
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

    def renew(self) -> None:
        """Take a new lock."""
        self._lock = threading.Lock()

    def forget_other_threads(self) -> None:
        """Drop the limits of other threads of the parent, after a fork, which does not copy them."""
        for _ in range(self._limit.inside - self._limit_of_thread.inside):
            self._limit.leave()

    def limit_thread(self) -> None:
        """Limit the BLAS of this Python thread for good, if each has its own number; another must be inside."""
        self._limit_of_thread.enter(self._of_thread)


ONE_THREAD_BLAS = OneThreadBlas()
