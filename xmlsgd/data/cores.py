"""The cores that this process may use."""

from __future__ import annotations

import functools
import threading

# Set in a process that was forked from one whose kernels had started threads, which it lacks. GNU OpenMP ends such a
# process when a kernel asks for threads, so its kernels run on one.
FORKED_FROM_THREADS = threading.Event()


@functools.cache
def usable_cores() -> int:
    """Return their number, by joblib, which respects affinities and limits of containers.

    Cached, since the query takes as long as predicting a row. joblib is imported here, when it is needed.
    """
    from joblib import cpu_count

    return int(cpu_count())


def usable_threads() -> int:
    """Return how many threads the kernels of this process may use."""
    return 1 if FORKED_FROM_THREADS.is_set() else usable_cores()
