"""Cache compiled Numba kernels on disk; if no folder can be written, each process compiles them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from ...errors import LOGGER

not_kept: list[str] = []  # why kernels that were compiled are not in the cache


def cached(dispatcher: Any) -> Any:
    """Let a Numba dispatcher cache its kernels on disk, if possible, and return it.

    The first kernel of a module that is not in the cache, and so is compiled, is announced in the log.
    """
    function, is_kept = getattr(dispatcher, "py_func", None) or dispatcher._pyfunc, False
    # Without a home, Numba would use a folder `~` in the current one, where another user may have put kernels.
    may_be_kept = os.environ.get("NUMBA_CACHE_DIR") or os.path.isabs(os.path.expanduser("~"))
    with suppress(RuntimeError):  # no folder can be written
        if may_be_kept:
            dispatcher.enable_caching()
            is_kept = True
    kept = dispatcher._cache
    load, save = kept.load_overload, kept.save_overload

    def load_or_tell(*given: Any) -> Any:
        found = load(*given)
        if found is None:
            tell_of_compiling(function.__module__, is_kept)
            if not is_kept:
                not_kept.append(why_no_folder())
        return found

    def save_if_there_is_room(*given: Any) -> None:
        try:
            save(*given)
        except OSError as error:
            not_kept.append(f"{kept.cache_path}: {error.strerror}")

    kept.load_overload, kept.save_overload = load_or_tell, save_if_there_is_room
    return dispatcher


@cache
def tell_of_compiling(module: str, is_kept: bool = True) -> None:
    """Announce once, by the logger "xmlsgd", that the kernels of a module are compiled.

    The kernels are named by the first words of the module's docstring. is_kept : whether later processes find them.

    This does not depend on `verbose`: new users have not set it, and would take half a minute of silence for a hang. It
    is no warning, as test suites turn warnings into errors. Without a configuration, `logging` writes to stderr; turn
    it off by `logging.getLogger("xmlsgd").setLevel("ERROR")`.
    """
    subject = str(sys.modules[module].__doc__).partition(":")[0].rstrip(".")
    how_often = "once on this machine" if is_kept else f"in each process: {why_no_folder()}"
    LOGGER.warning("compiling %s, %s ...", subject[0].lower() + subject[1:], how_often)


def why_no_folder() -> str:
    """Say what to do about NUMBA_CACHE_DIR where no folder can be written."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    return f"NUMBA_CACHE_DIR={folder} cannot be written" if folder else "NUMBA_CACHE_DIR may name a folder to keep them"
