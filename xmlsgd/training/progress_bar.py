"""What shows a run: rows/s, loss, P@1 and time left, as a bar on a terminal, else as a line now and then."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from .callbacks import Callback, ResumedRun
from .history import EpochRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import TextIO

    from .messages import Report

NEWEST_LOSS = 0.05  # share of the newest loss in the mean on display; the rate has tqdm's own smoothing
AFTER_EPOCH, WITHIN_EPOCH = 10.0, 60.0  # seconds, at least, since the line before


class Progress(Callback):
    """Watch a run on `stream` (default stderr): a bar where that is a terminal, else `Lines`.

    A context that ends the bar's line.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Draw an empty bar over the rows of all epochs."""
        self.epochs, self.done = epochs, 0
        self.shown: dict[str, str] = {}
        self.loss: float | None = None
        self.total = n_rows * epochs
        self._draw(0)

    def resume(self, run: ResumedRun) -> None:
        """Draw the bar anew, as far as the run had come."""
        self.close()
        self.done = len(run.records)
        self._draw(run.rows)

    def step(self, report: Report) -> None:
        """Move on by the rows of a batch."""
        loss = report.loss / report.rows
        self.loss = loss if self.loss is None else self.loss + NEWEST_LOSS * (loss - self.loss)
        self.shown["loss"] = f"{self.loss:.4g}"
        self.bar.set_postfix(self.shown, refresh=False)
        self.bar.update(report.rows)

    def lost(self, reports: Sequence[Report]) -> None:
        """Move back by the rows that are trained again."""
        self.bar.update(-sum(report.rows for report in reports))

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Show the measures of the epoch that is over and the number of the next."""
        if "P@1" in record:
            self.shown["P@1"] = f"{record['P@1']:.2f}"
        self.bar.set_postfix(self.shown, refresh=False)
        self.done += 1
        self.bar.set_description(f"epoch {min(self.done + 1, self.epochs)}/{self.epochs}")
        return False

    def _draw(self, rows: int) -> None:
        """Begin a bar at `rows` that are done."""
        what = f"epoch {min(self.done + 1, self.epochs)}/{self.epochs}"
        on_terminal = self.stream is None or self.stream.isatty()
        make = new_bar if on_terminal else Lines
        self.bar = make(self.total, what, self.stream, done=rows)

    def finish(self, center: np.ndarray) -> None:
        """Leave the bar as it is and go to the next line."""
        self.close()

    def close(self) -> None:
        """End the bar's line; may be called again."""
        if self.bar is not None:
            self.bar.close()


class Lines:
    """What a log or a notebook sees in place of a bar, by the same methods: a line for an epoch that is over.

    None that follows another within `AFTER_EPOCH` seconds: runs of a few seconds leave no trace. An epoch that takes
    long has one each `WITHIN_EPOCH` seconds.
    """

    def __init__(self, total: int, what: str, stream: TextIO, done: int = 0) -> None:
        self.total, self.what, self.stream = total, what, stream
        self.rows, self.done, self.shown = done, done, dict[str, str]()
        self.started = self.said = time.monotonic()

    def update(self, rows: int) -> None:
        """Move on by `rows`, back where they are fewer than none."""
        self.rows += rows
        self._say(WITHIN_EPOCH)

    def set_postfix(self, shown: dict[str, str], refresh: bool) -> None:
        """Take what is to be shown at the next line."""
        self.shown = shown

    def set_description(self, what: str) -> None:
        """Say how the part that is over went; the next one is `what`."""
        self._say(AFTER_EPOCH)
        self.what = what

    def close(self) -> None:
        """Leave the lines as they are."""

    def _say(self, least: float) -> None:
        """Write a line unless there was one less than `least` seconds ago."""
        now = time.monotonic()
        if now - self.said < least:
            return
        self.said, seconds = now, now - self.started
        trained = self.rows - self.done
        left = seconds * (self.total - self.rows) / max(trained, 1)
        values = [f"{name}={value}" for name, value in self.shown.items()]
        rate = f"{trained / seconds:,.0f} rows/s"
        line = f"{self.what}: {', '.join([f'{self.rows / self.total:.0%}', rate, *values, f'{left:.0f} s left'])}"
        with suppress(OSError):  # who read the stream may have left; the run goes on
            print(line, file=self.stream, flush=True)


def new_bar(total: int, what: str, stream: TextIO | None = None, quiet: bool = False, done: int = 0) -> Any:
    """Return a bar over `total` rows, `done` of them before, on `stream` (stderr); silent where that is no terminal."""
    from tqdm import tqdm

    stream = stream or sys.stderr
    return tqdm(
        total=total, initial=done, desc=what, unit=" rows", unit_scale=True, dynamic_ncols=True, file=stream,
        disable=quiet or stream is None or not stream.isatty(),
    )  # fmt: skip


def in_batches(
    n_rows: int, size: int, what: str, stream: TextIO | None = None, quiet: bool = False
) -> Iterator[np.ndarray]:
    """Yield the numbers of `n_rows` rows in batches of `size`, int64, with a bar that moves on after each."""
    with new_bar(n_rows, what, stream, quiet) as bar:
        for start in range(0, n_rows, size):
            rows = np.arange(start, min(start + size, n_rows))
            yield rows
            bar.update(len(rows))
