"""From exceptions to one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import MACHINE_ERRORS, naming
from ..errors import DataError, DivergenceError, MemoryEstimateError, ModelFileError, WorkerDied
from .signals import signal_of, signals_raise

if TYPE_CHECKING:
    from collections.abc import Callable

DONE, FAILED, BAD_INPUT = 0, 1, 2
SIGNALLED = 128  # plus the signal's number, as shells report it
READER_LEFT = SIGNALLED + 13  # SIGPIPE
STANDARD_OUTPUT = Path("standard output")  # as errors name it
STANDARD_ERROR = 2  # the last number of the standard streams

REMEDIES = {
    errno.EMFILE: "; let a process open more, by ulimit -n",
    errno.EFBIG: "; see ulimit -f",
    errno.ENOMEM: "; see ulimit -v",
}
NO_THREAD = "can't start new thread"  # as Python says it
NOT_MAPPED = ("failed to map segment", "Cannot allocate memory")  # as the loader of libraries does


class UsageError(ValueError):
    """The words of the command line do not fit."""


class Halted(RuntimeError):
    """An error ended a run whose model is saved all the same; the text says where, and what it was."""


def open_closed_streams() -> None:
    """Let standard streams that were closed lead nowhere.

    Else files of the run would have their numbers, and take what libraries say.
    """
    while (nothing := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        os.set_inheritable(nothing, True)
    os.close(nothing)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  for as long as the process lives


def guarded(run: Callable[[], None], traceback: bool = False) -> int:
    """Call `run` and return the exit code; an error becomes one line, below its traceback where that is asked for."""
    with warnings.catch_warnings(), signals_raise():
        # What a user can act on, in one line, without the line of our source that Python would add. Warnings of NumPy
        # about infinite numbers would come before our own error that says what to do.
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.showwarning = _show_warning
        try:
            run()
            with naming(STANDARD_OUTPUT):
                sys.stdout.flush()
        except SystemExit as stop:  # argparse's --help and --version
            return stop.code if isinstance(stop.code, int) else DONE
        except BrokenPipeError:
            _drop_output()
            return READER_LEFT
        except KeyboardInterrupt as stop:
            say(str(stop) or "interrupted")
            return SIGNALLED + signal_of(stop)
        except Exception as error:  # noqa: BLE001 (whatever it is, the user gets a line and no traceback)
            if traceback:
                import traceback as tracebacks

                tracebacks.print_exc()
            code, text = describe(error)
            say(text)
            if isinstance(error, OSError) and error.filename == str(STANDARD_OUTPUT):
                _drop_output()
            return code
    return DONE


def describe(error: Exception) -> tuple[int, str]:
    """Return the exit code and the text of an error."""
    if isinstance(error, DataError | ModelFileError | UsageError):
        return BAD_INPUT, str(error)
    if isinstance(error, FileExistsError) and error.errno is None:  # ours, with a whole sentence
        return BAD_INPUT, str(error)
    if isinstance(error, WorkerDied):
        last = error.traceback.splitlines()[-1:]
        return FAILED, f"{error.what}: {last[0]}; --traceback shows where" if last else error.what
    if isinstance(error, DivergenceError | MemoryEstimateError | Halted):
        return FAILED, str(error)
    if isinstance(error, RuntimeError) and NO_THREAD in str(error):
        return FAILED, f"{NO_THREAD}; let the user have more, by ulimit -u, or pass fewer --threads"
    if isinstance(error, ImportError) and any(words in str(error) for words in NOT_MAPPED):
        return FAILED, f"out of memory: a library cannot be loaded, got {str(error).splitlines()[-1]}; see ulimit -v"
    if isinstance(error, MemoryError):
        return FAILED, f"out of memory: {str(error) or 'an allocation failed'}; use fewer --hidden-layer-sizes or rows"
    if isinstance(error, OSError) and error.errno is not None:
        code = FAILED if error.errno in MACHINE_ERRORS else BAD_INPUT
        what = "" if error.filename is None else f"{error.filename}: "
        return code, f"{what}{error.strerror}{REMEDIES.get(error.errno, '')}"
    if isinstance(error, OSError):  # DownloadError and others of our own carry a whole sentence
        return FAILED, str(error)
    return FAILED, f"internal error: {type(error).__name__}: {error}; --traceback shows where"


def say(text: str) -> None:
    """Write one line to stderr, whatever the text holds."""
    line = " ".join(text.split())
    with suppress(OSError):  # the terminal may be gone
        print("xmlsgd:", line.encode(errors="backslashreplace").decode(), file=sys.stderr)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {message}")


def _drop_output() -> None:
    """Point stdout at nothing, or its flush at exit would raise the same error again."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return  # no real stream, as in tests
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)
