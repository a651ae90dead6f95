"""What the package logs, as lines of the command line: that kernels are compiled, which may take a minute."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..data.files.compiled import LOGGER
from .failures import say

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator


class Said(logging.Handler):
    """Write each record as a line of its own on stderr, wherever that leads."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        say(record.getMessage())


@contextmanager
def logs_said(args: Namespace) -> Iterator[None]:
    """Let what is logged meanwhile be said, unless the user wants quiet."""
    logger, handler = logging.getLogger(LOGGER), logging.NullHandler() if args.quiet else Said()
    propagates = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
