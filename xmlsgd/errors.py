"""Errors, warnings and the log that a user meets. Each says what was wrong, what was got and what would do."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any

LOGGER = logging.getLogger(__package__)


class DataError(ValueError):
    """Input data break a rule; the text reads `file:line: what was wrong, what was got`."""


class ModelFileError(ValueError):
    """A saved model, checkpoint or store is corrupted, incomplete or of an unknown format (`data.files.manifest`)."""


class MemoryEstimateError(MemoryError):
    """A run would need more memory than there is; the text lists the parts of the estimate."""


class DivergenceError(FloatingPointError):
    """The loss became NaN or infinite before there was a model to keep; the text says what to change."""


class MissingPackage(ImportError):
    """A package that only some features need is not installed; the text says how to install it."""


class WorkerDied(RuntimeError):
    """A worker stopped.

    Attributes
    ----------
    what : str
        Which worker, and its exit code or signal.
    traceback : str
        The worker's own; empty if it left none.
    """

    def __init__(self, what: str, traceback: str = "") -> None:
        super().__init__(what, traceback)
        self.what, self.traceback = what, traceback

    def __str__(self) -> str:
        return f"{self.what}:\n{self.traceback}" if self.traceback else self.what


NUMPY_SCALAR = re.compile(r"\bnp\.(?:\w+\(([^()]*)\)|(True|False)_)")  # as NumPy 2 prints them
TO_UTF8 = "convert it by `iconv -f latin1 -t utf-8`, or -f utf-16 if it begins with byte 0xff"
NUL_BYTE = "got a NUL byte; convert UTF-16 by `iconv -f utf-16 -t utf-8`, or delete NUL bytes by `tr -d '\\0'`"


def shorten(got: object, limit: int = 40) -> str:
    """Quote `got` for an error line: `repr` in one line, at most `limit` characters, no control codes.

    Numbers of NumPy, in lists too, are quoted as Python's: `nan` for `np.float32(nan)`.
    """
    text = " ".join(line.strip() for line in repr(got).splitlines())
    text = NUMPY_SCALAR.sub(r"\1\2", text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def optional_module(name: str, extra: str) -> Any:
    """Return a module of a package that the `extra` of this name installs; `MissingPackage` where that was not done."""
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_package(name.partition(".")[0], extra) from error


def missing_package(name: str, extra: str) -> MissingPackage:
    """Return the error of a package that the `extra` of this name installs."""
    return MissingPackage(f'{name} is missing: pip install "xmlsgd[{extra}]"', name=name)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside the package that has called it, however many calls lie between."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


@contextmanager
def problems_named(what: str) -> Iterator[None]:
    """Return a context in which the texts of warnings and of `DataError` begin with `what`."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            yield
        except DataError as error:
            raise DataError(f"{what}: {error}") from error
    for each in found:
        warn(f"{what}: {each.message}", each.category)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error (from Python 3.11), but not to `KeyboardInterrupt`."""
    if sys.version_info >= (3, 11) and not isinstance(error, KeyboardInterrupt):
        error.add_note(note)


def in_one_line(error: BaseException) -> str:
    """Return the class and the text of an error: `MemoryError: out of memory`."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def counted(n: int, noun: str) -> str:
    """Return a number of things: "1 epoch", "2 epochs"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def nor_others(n: int) -> str:
    """Return `, nor 3 others`, behind the first thing that is missing; nothing where there are no others."""
    return f", nor {n:,} other{'s' * (n > 1)}" if n else ""


def suggest(got: object, options: Iterable[str]) -> str:
    """Return `; did you mean 'adam'?` for the option nearest to a mistyped one, nothing where none is near."""
    by_name = {option.lower(): option for option in options}
    near = get_close_matches(got.lower(), by_name, n=1) if isinstance(got, str) else []
    return f"; did you mean {by_name[near[0]]!r}?" if near else ""
