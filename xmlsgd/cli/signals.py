"""Signals that end a process, as exceptions, so that `with` and `finally` blocks clean up."""

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
DEFAULT_HANDLERS = (signal.SIG_DFL, signal.default_int_handler)  # Python's, where the user has set no other
RETRY_SECONDS = 0.02  # until a signal that came at a bad moment is handled
CHECKPOINT_SECONDS = 10.0  # for a run to write its checkpoint before it is interrupted; clusters kill after 30
CLEANUP_SECONDS = 30.0  # for what the first signal has started; a later signal then cuts it short


class SignalInterrupt(KeyboardInterrupt):
    """A signal as an exception; `signal` is its number."""

    def __init__(self, text: str, number: int = signal.SIGINT) -> None:
        super().__init__(text)
        self.signal = number


@dataclass(eq=False)
class _Deferral:
    """A block of the program in which signals are kept in `received` instead of raised.

    first_raises : the first signal raises and only later ones are kept. A run with a `checkpoint` is first given a
    moment to write it. text : printed when the first signal arrives.
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
            with suppress(OSError):  # not `print`: the stream may be in the middle of another
                line = f"xmlsgd: {interrupt}: {self.text}\n"
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else -1, line.encode())


_DEFERRALS: list[_Deferral] = []  # the innermost last


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise like Ctrl-C, so that no half-written and no temporary file stays.

    A signal that the process handles in another way already stays as it is: `nohup` ignores SIGHUP.
    """
    numbers = NUMBERS if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: old for number in numbers if (old := signal.getsignal(number)) in DEFAULT_HANDLERS}
    hook, alarm = sys.unraisablehook, signal.getsignal(signal.SIGALRM) if handlers else None
    for number in handlers:
        signal.signal(number, _handle)
    if handlers:
        sys.unraisablehook = _raise_again
    try:
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
    """Keep signals in the yielded list until the block ends, while something is written that must be complete.

    first_raises : raise the first one, and keep only later ones, while an interrupted run is brought to its end.
    text : printed with the first. checkpoint : of a run that gets a moment to write it first.
    """
    deferral = _Deferral(first_raises, text, checkpoint)
    _DEFERRALS.append(deferral)
    try:
        yield deferral.received
    finally:
        _DEFERRALS.remove(deferral)


def signal_number(interrupt: BaseException) -> int:
    """Return the number of the signal that an interruption, or the cause of it, came from."""
    if isinstance(interrupt, SignalInterrupt):
        return interrupt.signal
    return signal_number(interrupt.__cause__) if interrupt.__cause__ else int(signal.SIGINT)


def in_words(number: int) -> str:
    """Return what a signal has done."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


def _handle(number: int, frame: FrameType | None) -> None:
    """Raise `SignalInterrupt`, unless it is deferred, would do harm or would be lost; then handle it later."""
    interrupt = SignalInterrupt(in_words(number), number)
    deferral = _DEFERRALS[-1] if _DEFERRALS else _Deferral(first_raises=True)
    if not deferral.raises_now():
        deferral.received.append(interrupt)
    elif _must_wait(frame):
        _retry(number)
    elif deferral.checkpoint is not None and deferral.checkpoint.end_by(interrupt):
        deferral.note(interrupt)
        _insist(deferral, interrupt, CHECKPOINT_SECONDS)
    else:
        deferral.note(interrupt)
        raise interrupt


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise a signal again that arrived in a finalizer or a callback, where Python prints exceptions and goes on."""
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
    """Raise an interrupt that a run was to end by, if the run has not ended within some seconds."""

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
    """Return whether a frame, or one of its callers, is in LLVM or in `_raise_again`.

    LLVM's objects crash the process if they are freed in the wrong order; what the hook raises is ignored.
    """
    while frame is not None:
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module == "llvmlite" or frame.f_code is _raise_again.__code__:
            return True
        frame = frame.f_back
    return False
