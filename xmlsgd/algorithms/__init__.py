"""Algorithms by name: `"sequential"` is the algorithm of `xmlsgd.algorithms.sequential`; the folder is the registry.

A module that defines an `Algorithm` adds one; its options are its dataclass fields: `"local_sgd/steps=8"`
(`options.py`). `"adaptive/published"` has the settings of its paper. `"auto"` stands for the algorithm that suits the
workers (`choose_algorithm`).
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache

from ..data.validation import check_choice
from ..errors import DataError, shorten
from .base import Algorithm
from .options import AUTO, PUBLISHED, read_options

BASES = ("base", "rounds")  # modules of base classes
ANY_BATCH = 1 << 30  # a batch so large that no check of sizes against it fails before the real batch is known


@cache
def algorithm_names() -> tuple[str, ...]:
    """Return the names of the algorithms found in this folder, in order."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name not in BASES and _defined_in(name)))


def algorithm_class(name: str) -> type[Algorithm]:
    """Return the `Algorithm` that module `name` defines; raise `DataError` if there is none or it is incomplete."""
    names = algorithm_names()
    check_choice("algorithm", name, names if name == AUTO else [AUTO, *names])
    kinds = _defined_in(name)
    if len(kinds) > 1:
        found = ", ".join(kind.__name__ for kind in kinds)
        raise DataError(f"algorithm {name!r}: a module must define one subclass of Algorithm, got {found}")
    if lacking := ", ".join(sorted(kinds[0].__abstractmethods__)):
        raise DataError(f"algorithm {name!r}: {kinds[0].__name__} must define {lacking}; see CONTRIBUTING.md")
    return kinds[0]


def _defined_in(name: str) -> list[type[Algorithm]]:
    """Return the subclasses of `Algorithm` that module `name` of this folder defines."""
    module = importlib.import_module(f"{__name__}.{name}")
    own = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    return [kind for kind in own if issubclass(kind, Algorithm)]


def get_algorithm(
    algorithm: str | Algorithm, batch: int, learning_rate: float, n_workers: int = 1, one_memory: bool = True
) -> Algorithm:
    """Return the algorithm that a text such as "local_sgd/steps=8" describes; an `Algorithm` is returned as it is.

    Parameters
    ----------
    algorithm
        Name with or without options, "auto", or an `Algorithm`.
    batch, learning_rate
        Fields of the algorithm.
    n_workers, one_memory
        Arguments of `choose_algorithm`, for "auto".

    Raises
    ------
    DataError
        If there is no algorithm of that name, or it does not take the options.
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str):
        raise DataError(f"algorithm: must be a name or an Algorithm such as LocalSGD(), got {shorten(algorithm)}")
    name, *options = algorithm.split("/")
    if name == AUTO:
        read_options(Algorithm, name, options)  # raises if there are any
        return choose_algorithm(batch, learning_rate, n_workers, one_memory)
    kind = algorithm_class(name)
    if options[:1] == [PUBLISHED]:
        return replace(kind.published(batch, learning_rate), **read_options(kind, name, options[1:]))
    return kind(batch=batch, learning_rate=learning_rate, **read_options(kind, name, options))


def check_algorithm(algorithm: str | Algorithm) -> None:
    """Raise `DataError` if `get_algorithm` would for any batch size."""
    get_algorithm(algorithm, ANY_BATCH, 1.0)


def choose_algorithm(batch: int, learning_rate: float, n_workers: int, one_memory: bool = True) -> Algorithm:
    """Return the algorithm that suits the workers; its `reason` says why.

    One worker trains alone. Workers that compute in the same memory share one model, which needs no merges and loses
    nothing to averaging. Other workers train replicas, merged by AdaSum, which keeps what single workers learned of
    rare labels. Measurements are in docs/decisions/workers.md.

    Parameters
    ----------
    batch, learning_rate
        Fields of the algorithm.
    n_workers
        Number of workers.
    one_memory
        Whether all workers compute in the same memory, so that they can write the model in place.
    """
    if n_workers == 1:
        name, reason = "sequential", "one worker: nothing to share or merge"
    elif one_memory:
        name, reason = "hogwild", "workers write one memory: no merges, no averaging"
    else:
        name, reason = "local_sgd", "workers have memories of their own: replicas, merged by AdaSum"
    algorithm = get_algorithm(name, batch, learning_rate)
    algorithm.reason = reason
    return algorithm
