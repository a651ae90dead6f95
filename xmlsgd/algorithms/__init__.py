"""Algorithms by name: `"sequential"` is the algorithm of `xmlsgd.algorithms.sequential`; the folder is the registry."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from ..errors import DataError
from .base import Algorithm


def algorithm_names() -> list[str]:
    """Return the names of the algorithms found in this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base")


def get_algorithm(algorithm: str | Algorithm, batch: int, rate: float) -> Algorithm:
    """Return the algorithm of a name with the given batch rows and rate; an `Algorithm` is returned as it is."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if algorithm not in algorithm_names():
        raise DataError(f"algorithm must be one of {', '.join(algorithm_names())}, got {algorithm!r}")
    module = importlib.import_module(f"{__name__}.{algorithm}")
    kinds: list[Callable[..., Algorithm]] = [
        c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Algorithm) and c is not Algorithm
    ]
    (kind,) = kinds  # one idea a file
    return kind(batch=batch, rate=rate)
