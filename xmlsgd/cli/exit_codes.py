"""Exit codes: turn an exception into one line on stderr and a number."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..data.files.system_errors import disk_errors_named, is_system_error
from ..errors import DataError, DivergenceError, MemoryEstimateError, MissingPackage, ModelFileError, WorkerDied
from .messages import STANDARD_OUTPUT, say
from .signals import signal_number, signals_as_exceptions

DONE, FAILED, BAD_INPUT = 0, 1, 2
SIGNALLED = 128  # plus the signal's number, as shells report it
READER_LEFT = SIGNALLED + 13  # SIGPIPE
NO_THREAD = "can't start new thread"  # error message of Python
STANDARD_ERROR = 2  # file descriptor, the highest of the standard streams

REMEDIES = {
    errno.EMFILE: "; let a process open more files, by ulimit -n",
    errno.EFBIG: "; see ulimit -f",
    errno.ENOMEM: "; see ulimit -v",
}


class UsageError(ValueError):
    """The command line is wrong.

    Raised by the parser (`flags`), for output names (`output_files`), for flags that do not suit the data
    (`input_options`), or by the command. Parameters of the estimator are checked by the estimator.
    """


class TrainingStopped(RuntimeError):
    """An error ended a run, but its model was saved; the text says where."""


def open_closed_streams() -> None:
    """Connect closed standard streams to the null device.

    Otherwise files of the run would get their descriptors, and receive what libraries print.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        os.set_inheritable(null, True)
    os.close(null)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  open as long as the process lives


def run_guarded(run: Callable[[], None], traceback: bool = False) -> int:
    """Call `run` and return the exit code; print an error in one line, after its traceback if `traceback`."""
    with warnings.catch_warnings(), signals_as_exceptions():
        # A warning is one line, without the source line that Python adds. NumPy's warnings of infinite numbers are
        # ignored, because our own error follows, which says what to do.
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.showwarning = _show_warning
        try:
            run()
            with disk_errors_named(STANDARD_OUTPUT):
                sys.stdout.flush()
        except SystemExit as stop:  # raised by argparse for --help and --version
            return stop.code if isinstance(stop.code, int) else DONE
        except BrokenPipeError:
            _discard_output()
            return READER_LEFT
        except KeyboardInterrupt as stop:
            say(str(stop) or "interrupted")
            return SIGNALLED + signal_number(stop)
        except Exception as error:  # noqa: BLE001 (any error becomes one line without a traceback)
            if traceback:
                import traceback as tracebacks

                tracebacks.print_exc()
            code, text = exit_code_and_text(error)
            say(text)
            if isinstance(error, OSError) and error.filename == str(STANDARD_OUTPUT):
                _discard_output()
            return code
    return DONE


def exit_code_and_text(error: Exception) -> tuple[int, str]:
    """Return the exit code and the text of an error."""
    if isinstance(error, DataError | MissingPackage | ModelFileError | UsageError):
        return BAD_INPUT, str(error)
    if isinstance(error, FileExistsError) and error.errno is None:  # raised by us, with a complete message
        return BAD_INPUT, str(error)
    if isinstance(error, WorkerDied):
        last = error.traceback.splitlines()[-1:]
        return FAILED, f"{error.what}: {last[0]}; --traceback shows where" if last else error.what
    if isinstance(error, DivergenceError | MemoryEstimateError | TrainingStopped):
        return FAILED, str(error)
    if isinstance(error, MemoryError):
        return FAILED, f"out of memory: {str(error) or 'an allocation failed'}; use fewer --hidden-layer-sizes or rows"
    if isinstance(error, OSError) and error.errno is not None:
        code = FAILED if is_system_error(error) else BAD_INPUT
        what = "" if error.filename is None else f"{error.filename}: "
        return code, f"{what}{error.strerror}{REMEDIES.get(error.errno, '')}"
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        return FAILED, f"{error}; pass a smaller --threads, or see ulimit -u"
    if isinstance(error, OSError):  # raised by us, such as DownloadError, with a complete message
        return FAILED, str(error)
    return FAILED, f"internal error: {type(error).__name__}: {error}; --traceback shows where"


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {message}")


def _discard_output() -> None:
    """Connect stdout to the null device, so that its flush at exit does not raise the same error again."""
    with suppress(OSError, ValueError, AttributeError):  # no real stream, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
