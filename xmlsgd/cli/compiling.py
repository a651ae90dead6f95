"""Tell once when Numba begins to compile: the first run on a machine would be silent for a minute otherwise."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from numba.core import event

from .failures import say

if TYPE_CHECKING:
    from argparse import Namespace
    from contextlib import AbstractContextManager

MESSAGE = "compiling kernels for such runs, once on this machine: about a minute (xmlsgd warmup: all of them) ..."


class Compiling(event.Listener):
    """Say so on stderr at the first kernel that is not found in the cache."""

    def __init__(self) -> None:
        self._told = False

    def on_start(self, event: Any) -> None:
        """Say it, unless it was said."""
        if not self._told:
            self._told = True
            say(MESSAGE)

    def on_end(self, event: Any) -> None:
        """Be silent."""


def compiling_told(args: Namespace) -> AbstractContextManager[Any]:
    """Return a context in which compiling is told, wherever stderr leads, unless the user wants quiet."""
    return nullcontext() if args.quiet else event.install_listener("numba:compile", Compiling())
