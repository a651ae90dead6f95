"""The cores that this process may use."""

from __future__ import annotations

import functools


@functools.cache
def usable_cores() -> int:
    """Return their number, by joblib, which knows affinities and limits of containers.

    Finding out takes as long as predicting a row, and joblib is loaded for it.
    """
    from joblib import cpu_count

    return int(cpu_count())
