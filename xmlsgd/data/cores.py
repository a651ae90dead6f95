"""The cores that this process may use."""

from __future__ import annotations

import functools


@functools.cache
def usable_cores() -> int:
    """Return their number, by joblib, which respects affinities and limits of containers.

    Cached, since the query takes as long as predicting a row. joblib is imported here, when it is needed.
    """
    from joblib import cpu_count

    return int(cpu_count())
