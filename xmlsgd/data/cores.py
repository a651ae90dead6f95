"""The cores that this process may use."""

from __future__ import annotations

import functools
import threading

# Set in a process that was forked after kernels of its parent had started threads. A fork does not copy threads, and
# GNU OpenMP ends such a process when a kernel asks for them; so its kernels run on one thread.
FORKED_FROM_THREADS = threading.Event()


@functools.cache
def usable_cores() -> int:
    """Return the number of cores that this process may use, by joblib, which respects affinity and container limits.

    The number is cached, since the query takes as long as predicting a row.
    """
    from joblib import cpu_count

    return int(cpu_count())


def usable_threads() -> int:
    """Return how many threads the kernels of this process may use."""
    return 1 if FORKED_FROM_THREADS.is_set() else usable_cores()
