"""Algorithms by name: `"sequential"` is the algorithm of `xmlsgd.algorithms.sequential`; the folder is the registry."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from ..errors import DataError
from .base import Algorithm


def algorithm_names() -> list[str]:
    """Return the names of the algorithms found in this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if algorithm_class(m.name) is not None)


def algorithm_class(name: str) -> type[Algorithm] | None:
    """Return the algorithm that a module of this folder defines, None where it defines none."""
    module = importlib.import_module(f"{__name__}.{name}")
    own = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Algorithm) and kind.__module__ == module.__name__
    ]
    (kind,) = own or [Algorithm]  # one idea a file
    return None if kind is Algorithm or inspect.isabstract(kind) else kind


def get_algorithm(algorithm: str | Algorithm, batch: int, rate: float) -> Algorithm:
    """Return the algorithm of a name with the given batch rows and rate; an `Algorithm` is returned as it is."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if algorithm not in algorithm_names():
        raise DataError(f"algorithm must be one of {', '.join(algorithm_names())}, got {algorithm!r}")
    kind = algorithm_class(algorithm)
    assert kind is not None
    return kind(batch=batch, rate=rate)
