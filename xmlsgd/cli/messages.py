"""Messages to the user: results on stdout; notes, warnings and log records, one line each, on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..data.files.system_errors import disk_errors_named
from ..errors import LOGGER

STDIN = STDOUT = "-"
STDIN_NAME, STANDARD_OUTPUT = "stdin", Path("standard output")  # their names in errors
# Characters that end an entry or a line, control a terminal, or reverse the order in which it shows text.
CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
ESCAPED = {code: ascii(chr(code))[1:-1] for code in CONTROLS}  # as in Python: tab as \t, escape as \x1b


@dataclass(frozen=True)
class Console:
    """Where a command writes: its streams and its file of results.

    quiet : print no notes and no progress. stdout_taken : stdout is for JSON or predictions alone. json : the file for
    the results as JSON, if any.
    """

    quiet: bool = False
    stdout_taken: bool = False
    json: str | None = None

    def answer(self, text: str) -> None:
        """Print the result that was asked for, even if `quiet`."""
        if not self.stdout_taken:
            with disk_errors_named(STANDARD_OUTPUT):
                print(text, flush=True)

    def show(self, text: str) -> None:
        """Print a result that is also saved elsewhere, unless `quiet`."""
        if not self.quiet:
            self.answer(text)

    @property
    def is_interactive(self) -> bool:
        """Return whether a person at a terminal reads the notes."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Print a note about the progress, if a person reads it at a terminal."""
        if self.is_interactive:
            print(text, file=sys.stderr)


def say(text: str) -> None:
    """Write a text as one line to stderr, with escapes for control characters."""
    line = " ".join(text.split())
    with suppress(OSError):  # the terminal may be gone
        print("xmlsgd:", line.translate(ESCAPED).encode(errors="backslashreplace").decode(), file=sys.stderr)


class _LineHandler(logging.Handler):
    """Writes each log record as a line to the current `sys.stderr`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        say(record.getMessage())


@contextmanager
def log_lines(console: Console) -> Iterator[None]:
    """Print log records of the package, such as "compiling kernels", inside this context; only errors if quiet."""
    handler, propagates = _LineHandler(logging.ERROR if console.quiet else logging.NOTSET), LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.propagate = propagates
