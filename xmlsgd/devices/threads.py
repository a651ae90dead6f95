"""Threads of this process that devices share: Numba's, which run `Kernel.threaded`, and those of the BLAS."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import numba
import scipy.linalg.cython_blas  # noqa: F401  the BLAS of Numba's np.dot: loaded now, so that it can be limited
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from threadpoolctl import LibController

_WORKQUEUE = threading.Lock()


def launch() -> AbstractContextManager[object]:
    """Return what to hold while a kernel runs on Numba's threads.

    Its layers OpenMP and TBB serve several Python threads at once; its own work queue, the fallback where neither is
    installed, ends the process when two launch at once, so there they take turns.
    """
    numba.get_num_threads()  # starts the layer, so that its name is known
    return _WORKQUEUE if numba.threading_layer() == "workqueue" else contextlib.nullcontext()


class OneThreadBlas:
    """Keeps the BLAS at one thread while anybody is inside.

    The number is the process's, not the Python thread's: the first one in sets it, the last one out restores it. The
    libraries are looked for once: finding them takes 3 ms, more than a row of prediction. Nor is threadpoolctl's own
    limit used, which takes 14 microseconds.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._libraries: list[LibController] | None = None
        self._before: list[tuple[LibController, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                if self._libraries is None:
                    self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
                numbers = [(library, library.get_num_threads()) for library in self._libraries]
                self._before = [(library, n) for library, n in numbers if n is not None and n > 1]
                for library, _ in self._before:
                    library.set_num_threads(1)
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for library, n in self._before:
                    library.set_num_threads(n)


ONE_THREAD_BLAS = OneThreadBlas()
