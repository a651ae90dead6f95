"""From exceptions to one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..errors import DataError, DivergenceError, MemoryEstimateError, ModelFileError, WorkerDied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DONE, FAILED, BAD_INPUT = 0, 1, 2
SIGNALLED = 128  # plus the signal's number, as shells report it
READER_LEFT = SIGNALLED + 13  # SIGPIPE

# An OSError with one of these is the disk's or the machine's fault; any other is a wrong name on the command line.
MACHINE_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE))


class UsageError(ValueError):
    """The words of the command line do not fit."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C or what is treated like it; the text says more than that. `signal` is what was received."""

    def __init__(self, text: str, number: int = signal.SIGINT) -> None:
        super().__init__(text)
        self.signal = number


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise like Ctrl-C, so that nothing is left half-written and no temporary file stays.

    A signal for which the process has other plans keeps them: `nohup` ignores SIGHUP.
    """
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, _: object) -> None:
    raise Stopped(f"ended by {signal.Signals(number).name}", number)


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
            return code
    return DONE


def signal_of(stop: BaseException) -> int:
    """Return the number of the signal that an interruption came from, by its causes."""
    if isinstance(stop, Stopped):
        return stop.signal
    return signal_of(stop.__cause__) if stop.__cause__ else int(signal.SIGINT)


def describe(error: Exception) -> tuple[int, str]:
    """Return the exit code and the text of an error."""
    if isinstance(error, DataError | ModelFileError | UsageError):
        return BAD_INPUT, str(error)
    if isinstance(error, FileExistsError) and error.errno is None:  # ours, with a whole sentence
        return BAD_INPUT, str(error)
    if isinstance(error, DivergenceError | WorkerDied | MemoryEstimateError):
        return FAILED, str(error)
    if isinstance(error, MemoryError):
        return FAILED, f"out of memory: {str(error) or 'an allocation failed'}; use fewer --hidden-layer-sizes or rows"
    if isinstance(error, OSError) and error.errno is not None:
        code = FAILED if error.errno in MACHINE_ERRORS else BAD_INPUT
        return code, f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
    if isinstance(error, OSError):  # DownloadError and others of our own carry a whole sentence
        return FAILED, str(error)
    return FAILED, f"internal error: {type(error).__name__}: {error}; --traceback shows where"


def say(text: str) -> None:
    """Write one line to stderr, whatever the text holds."""
    line = " ".join(text.split())
    if sys.stderr is None:
        return
    with suppress(OSError):  # the terminal may be gone
        print("xmlsgd:", line.encode(errors="backslashreplace").decode(), file=sys.stderr)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {message}")


def _drop_output() -> None:
    """Point stdout at nothing, or its flush at exit would raise the broken pipe again."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return  # no real stream, as in tests
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)
