"""Signals that end a process, as exceptions that reach whoever has to clean up."""

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

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
PLANS = (signal.SIG_DFL, signal.default_int_handler)  # what Python does with a signal of which nobody has said anything
AGAIN = 0.02  # seconds until a signal that came at a bad moment is looked at again
GRACE = 10.0  # seconds in which a run may come to a place where it writes a checkpoint; clusters kill after 30
PATIENCE = 30.0  # seconds that a signal waits for the end that an earlier one has begun; the next one cuts it short


class Stopped(KeyboardInterrupt):
    """Ctrl-C or what is treated like it; the text says more than that. `signal` is what was received."""

    def __init__(self, text: str, number: int = signal.SIGINT) -> None:
        super().__init__(text)
        self.signal = number


@dataclass(eq=False)
class _Watch:
    """Signals that came while a part of the program had them wait: all, or those behind the first (`first_raises`).

    That one may be left to a run, which ends by it when its `checkpoint` is written.
    """

    first_raises: bool
    text: str = ""
    checkpoint: Checkpoint | None = None
    came: list[Stopped] = field(default_factory=list)
    raised_at: float = 0.0

    def raises(self) -> bool:
        """Return whether one that comes now does not wait."""
        return self.first_raises and (not self.came or time.monotonic() > self.raised_at + PATIENCE)

    def leaves(self, stop: Stopped) -> bool:
        """Return whether a run under way was told to end by one that does not wait."""
        return self.checkpoint is not None and self.checkpoint.end_by(stop)

    def note(self, stop: Stopped) -> None:
        """Note one that is raised, and tell those who wait for the end."""
        self.came.append(stop)
        self.raised_at = time.monotonic()
        if self.text:
            with suppress(OSError):  # no `print`: the stream may be in the middle of another
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else -1, f"xmlsgd: {stop}: {self.text}\n".encode())


_WATCHES: list[_Watch] = []  # the innermost last


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise like Ctrl-C, so that nothing is left half-written and no temporary file stays.

    A signal for which the process has other plans keeps them: `nohup` ignores SIGHUP.
    """
    names = NAMES if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    plans = {number: plan for number in numbers if (plan := signal.getsignal(number)) in PLANS}
    hook, alarm = sys.unraisablehook, signal.getsignal(signal.SIGALRM) if plans else None
    for number in plans:
        signal.signal(number, _stop)
    if plans:
        sys.unraisablehook = _raise_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if plans:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
        for number, plan in plans.items():
            signal.signal(number, plan)


@contextmanager
def signals_wait() -> Iterator[list[Stopped]]:
    """Let signals that would raise wait until what is written here is whole; give the list that takes them."""
    with _watched(_Watch(first_raises=False)) as watch:
        yield watch.came


@contextmanager
def signals_raise_once(text: str, checkpoint: Checkpoint | None = None) -> Iterator[None]:
    """Let the first signal raise, and others wait while what it has ended is brought to an end; `text` says that.

    A run with a `checkpoint` is left a moment to write it first.
    """
    with _watched(_Watch(first_raises=True, text=text, checkpoint=checkpoint)):
        yield


@contextmanager
def _watched(watch: _Watch) -> Iterator[_Watch]:
    _WATCHES.append(watch)
    try:
        yield watch
    finally:
        _WATCHES.remove(watch)


def signal_of(stop: BaseException) -> int:
    """Return the number of the signal that an interruption came from, by its causes."""
    if isinstance(stop, Stopped):
        return stop.signal
    return signal_of(stop.__cause__) if stop.__cause__ else int(signal.SIGINT)


def in_words(number: int) -> str:
    """Return what a signal has done."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise `Stopped`, but not where that does harm or is lost; there, look at it again in a moment."""
    stop = Stopped(in_words(number), number)
    watch = _WATCHES[-1] if _WATCHES else _Watch(first_raises=True)
    if not watch.raises():
        watch.came.append(stop)
    elif _must_wait(frame):
        _later(number)
    elif watch.leaves(stop):
        watch.note(stop)
        _insist_later(watch, stop, GRACE)
    else:
        watch.note(stop)
        raise stop


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise a stop again that came in a finalizer or a callback, where Python prints an exception and goes on."""
    if isinstance(lost.exc_value, Stopped):
        for watch in _WATCHES:
            watch.came = [stop for stop in watch.came if stop is not lost.exc_value]
        _later(lost.exc_value.signal)
    else:
        sys.__unraisablehook__(lost)


def _later(number: int) -> None:
    """Look at a signal again in a moment."""
    signal.signal(signal.SIGALRM, lambda _, frame: _stop(number, frame))
    signal.setitimer(signal.ITIMER_REAL, AGAIN)


def _insist_later(watch: _Watch, stop: Stopped, seconds: float) -> None:
    """Raise a stop that was left to a run, unless that has ended by it until then."""

    def insist(_: int, frame: FrameType | None) -> None:
        if watch.checkpoint is None or watch.checkpoint.request.error is not stop:
            return
        if _must_wait(frame):
            _insist_later(watch, stop, AGAIN)
        else:
            raise stop

    signal.signal(signal.SIGALRM, insist)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _must_wait(frame: FrameType | None) -> bool:
    """Return whether a frame, or one of those that called it, is of LLVM or of `_raise_again`.

    Objects of LLVM, freed in the wrong order, take the process down; what the hook raises is ignored.
    """
    while frame is not None:
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module == "llvmlite" or frame.f_code is _raise_again.__code__:
            return True
        frame = frame.f_back
    return False
