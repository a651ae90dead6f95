"""Kernels of Numba on disk: kept where a folder can be written and has room, else compiled in each process."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def cached(dispatcher: Any) -> Any:
    """Return a dispatcher of Numba, which keeps its kernels on disk from now on if it can."""
    with suppress(RuntimeError):  # no folder can be written
        dispatcher.enable_caching()
        cache = dispatcher._cache
        save = cache.save_overload

        def save_if_there_is_room(*given: Any) -> None:
            with suppress(OSError):
                save(*given)

        cache.save_overload = save_if_there_is_room
    return dispatcher
