"""What a person reads: results on stdout; notes, warnings and log records in lines on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..data.files.compiled import LOGGER
from ..data.files.temporary import disk_errors_named

STDIN = STDOUT = "-"
STANDARD_OUTPUT = Path("standard output")  # as errors name it


@dataclass(frozen=True)
class Console:
    """The streams of a command.

    quiet : print no notes and no progress. stdout_taken : the JSON or the predictions have stdout to themselves.
    """

    quiet: bool = False
    stdout_taken: bool = False

    def answer(self, text: str) -> None:
        """Print what was asked for, quiet or not."""
        if not self.stdout_taken:
            with disk_errors_named(STANDARD_OUTPUT):
                print(text, flush=True)

    def show(self, text: str) -> None:
        """Print a result that is also saved elsewhere, unless the user wants quiet."""
        if not self.quiet:
            self.answer(text)

    @property
    def is_interactive(self) -> bool:
        """Return whether a person at a terminal reads the notes."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Tell a person at a terminal what happens."""
        if self.is_interactive:
            print(text, file=sys.stderr)


def say(text: str) -> None:
    """Write one line to stderr, whatever characters the text holds."""
    line = " ".join(text.split())
    with suppress(OSError):  # the terminal may be gone
        print("xmlsgd:", line.encode(errors="backslashreplace").decode(), file=sys.stderr)


class _LineHandler(logging.Handler):
    """Write each log record as a line on stderr, wherever that leads at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write it."""
        say(record.getMessage())


@contextmanager
def log_lines(console: Console) -> Iterator[None]:
    """Print the package's log records, such as "compiling kernels"; errors alone where the user wants quiet."""
    logger, handler = logging.getLogger(LOGGER), _LineHandler(logging.ERROR if console.quiet else logging.NOTSET)
    propagates = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
