"""Algorithms by name: `"sequential"` is the algorithm of `xmlsgd.algorithms.sequential`; the folder is the registry.

Options may follow: `"local_sgd/steps=8/outer=nesterov:0.9:0.7"` (`options.py`).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from ..data.validation import check_choice
from ..errors import DataError, shorten
from .base import Algorithm
from .options import read_options

MOST_ROWS = 1 << 30  # of a batch: sizes that may not exceed it are looked at when it is known


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


def get_algorithm(algorithm: str | Algorithm, batch: int, learning_rate: float) -> Algorithm:
    """Return the algorithm of a name, with options or without, with the given batch rows and rate.

    An `Algorithm` is returned as it is; `DataError` for what names none.
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str):
        raise DataError(f"algorithm must be a name or an Algorithm such as LocalSGD(), got {shorten(algorithm)}")
    name, *options = algorithm.split("/")
    check_choice("algorithm", name, algorithm_names())
    kind = algorithm_class(name)
    assert kind is not None
    return kind(batch=batch, learning_rate=learning_rate, **read_options(kind, name, options))


def check_algorithm(algorithm: str) -> None:
    """Raise `DataError` for a text that names no algorithm, whatever its batch will be."""
    get_algorithm(algorithm, MOST_ROWS, 1.0)
