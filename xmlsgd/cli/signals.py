"""Turn signals that end a process into exceptions, so that `with` and `finally` blocks clean up."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from ..training.checkpoints import Checkpoint

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEFAULT_HANDLERS = (signal.SIG_DFL, signal.default_int_handler)  # of Python, if the user has set no other
RETRY_SECONDS = 0.02  # until a signal that came at a bad moment is handled
CHECKPOINT_SECONDS = 10.0  # time for a run to write its checkpoint before it is interrupted; clusters kill after 30
CLEANUP_SECONDS = 30.0  # time to clean up after the first signal; a later signal then interrupts the cleaning


class SignalInterrupt(KeyboardInterrupt):
    """A signal as an exception; `signal` is its number."""

    def __init__(self, text: str, number: int = signal.SIGINT) -> None:
        super().__init__(text)
        self.signal = number


@dataclass(eq=False)
class _Deferral:
    """A block of the program in which signals are kept in `received`, not raised.

    first_raises : the first signal is raised, and only later ones are kept. text : printed when the first signal
    arrives. checkpoint : of a run, which gets `CHECKPOINT_SECONDS` to write it before the signal is raised.
    """

    first_raises: bool
    text: str = ""
    checkpoint: Checkpoint | None = None
    received: list[SignalInterrupt] = field(default_factory=list)
    raised_at: float = 0.0

    def raises_now(self) -> bool:
        """Return whether a signal that arrives now is raised."""
        return self.first_raises and (not self.received or time.monotonic() > self.raised_at + CLEANUP_SECONDS)

    def note(self, interrupt: SignalInterrupt) -> None:
        """Record a signal that is raised, and print the text."""
        self.received.append(interrupt)
        self.raised_at = time.monotonic()
        if self.text:
            with suppress(OSError):  # not by `print`, which the signal may have interrupted
                line = f"xmlsgd: {interrupt}: {self.text}\n"
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else -1, line.encode())


_DEFERRALS: list[_Deferral] = []  # the innermost last


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise an exception as Ctrl-C does, so that no incomplete or temporary file is left.

    Later signals do not interrupt the cleaning for `CLEANUP_SECONDS`. A signal that the process handles otherwise
    already is left alone: `nohup` ignores SIGHUP.
    """
    numbers = NUMBERS if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: old for number in numbers if (old := signal.getsignal(number)) in DEFAULT_HANDLERS}
    hook, alarm = sys.unraisablehook, signal.getsignal(signal.SIGALRM) if handlers else None
    for number in handlers:
        signal.signal(number, _handle)
    if handlers:
        sys.unraisablehook = _raise_again
    try:
        with signals_deferred(first_raises=True):
            yield
    finally:
        sys.unraisablehook = hook
        if handlers:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def signals_deferred(
    first_raises: bool = False, text: str = "", checkpoint: Checkpoint | None = None
) -> Iterator[list[SignalInterrupt]]:
    """Keep signals in the yielded list until the block ends, because it writes something that must be complete.

    The arguments are those of `_Deferral`.
    """
    deferral = _Deferral(first_raises, text, checkpoint)
    _DEFERRALS.append(deferral)
    try:
        yield deferral.received
    finally:
        _DEFERRALS.remove(deferral)


def signal_number(interrupt: BaseException) -> int:
    """Return the number of the signal that caused an interruption; SIGINT if it is not known."""
    if isinstance(interrupt, SignalInterrupt):
        return interrupt.signal
    return signal_number(interrupt.__cause__) if interrupt.__cause__ else int(signal.SIGINT)


def describe_signal(number: int) -> str:
    """Say what a signal has done: "interrupted", "ended by SIGTERM"."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


def _handle(number: int, frame: FrameType | None) -> None:
    """Raise `SignalInterrupt`; or keep it for later, if it is deferred, or must not be raised in this frame."""
    interrupt = SignalInterrupt(describe_signal(number), number)
    deferral = _DEFERRALS[-1] if _DEFERRALS else _Deferral(first_raises=True)
    if not deferral.raises_now():
        deferral.received.append(interrupt)
    elif _must_wait(frame):
        _retry(number)
    elif deferral.checkpoint is not None and deferral.checkpoint.end_by(interrupt):
        _note(interrupt)
        _insist(deferral, interrupt, CHECKPOINT_SECONDS)
    else:
        _note(interrupt)
        raise interrupt


def _note(interrupt: SignalInterrupt) -> None:
    """Record a signal that is raised in all blocks, which it may end one after the other."""
    for deferral in _DEFERRALS:
        deferral.note(interrupt)


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise a signal again that arrived in a finalizer or a callback: Python prints exceptions there and continues."""
    if isinstance(lost.exc_value, SignalInterrupt):
        for deferral in _DEFERRALS:
            deferral.received[:] = [each for each in deferral.received if each is not lost.exc_value]
        _retry(lost.exc_value.signal)
    else:
        sys.__unraisablehook__(lost)


def _retry(number: int) -> None:
    """Handle a signal again in a moment."""
    signal.signal(signal.SIGALRM, lambda _, frame: _handle(number, frame))
    signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)


def _insist(deferral: _Deferral, interrupt: SignalInterrupt, seconds: float) -> None:
    """Raise an interrupt after some seconds, if it has not ended the run by then."""

    def insist(_: int, frame: FrameType | None) -> None:
        if deferral.checkpoint is None or deferral.checkpoint.request.error is not interrupt:
            return
        if _must_wait(frame):
            _insist(deferral, interrupt, RETRY_SECONDS)
        else:
            raise interrupt

    signal.signal(signal.SIGALRM, insist)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _must_wait(frame: FrameType | None) -> bool:
    """Return whether no signal must be raised in a frame: it, or one of its callers, is in LLVM or `_raise_again`.

    Objects of LLVM crash the process if they are freed in the wrong order; Python ignores what the hook raises.
    """
    while frame is not None:
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module == "llvmlite" or frame.f_code is _raise_again.__code__:
            return True
        frame = frame.f_back
    return False
