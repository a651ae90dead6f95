"""Cache compiled Numba kernels on disk; where no folder can be written, they are compiled in each process."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from functools import cache
from typing import Any

LOGGER = "xmlsgd"


def cached(dispatcher: Any) -> Any:
    """Let a Numba dispatcher cache its kernels on disk, if possible, and return it.

    The first kernel of a module that is not found there, and is compiled, is announced in the log.
    """
    function, is_kept = getattr(dispatcher, "py_func", None) or dispatcher._pyfunc, False
    with suppress(RuntimeError):  # no folder can be written
        dispatcher.enable_caching()
        is_kept = True
    kept = dispatcher._cache
    load, save = kept.load_overload, kept.save_overload

    def load_or_tell(*given: Any) -> Any:
        found = load(*given)
        if found is None:
            tell_of_compiling(function.__module__, is_kept)
        return found

    def save_if_there_is_room(*given: Any) -> None:
        with suppress(OSError):
            save(*given)

    kept.load_overload, kept.save_overload = load_or_tell, save_if_there_is_room
    return dispatcher


@cache
def tell_of_compiling(module: str, is_kept: bool = True) -> None:
    """Say once that the kernels of a module are compiled, by the logger "xmlsgd", in the first words of its docstring.

    is_kept : whether later processes find them.

    Whatever `verbose` is: who meets this has chosen nothing yet, and takes a minute of silence for a hang. Not by
    `warnings`, which test suites turn into errors. Where nobody has configured it, `logging` writes to stderr; it is
    turned off as any logger is, by `logging.getLogger("xmlsgd").setLevel("ERROR")`.
    """
    subject = str(sys.modules[module].__doc__).partition(":")[0].rstrip(".")
    how_often = "once on this machine" if is_kept else "in each process: NUMBA_CACHE_DIR may name a folder to keep them"
    logging.getLogger(LOGGER).warning("compiling %s, %s ...", subject[0].lower() + subject[1:], how_often)
