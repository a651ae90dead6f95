"""Show the progress of a run: rows/s, loss, P@1 and time left, as a bar on a terminal, else as occasional lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np

from .callbacks import Callback, ResumedRun
from .history import EpochRecord
from .messages import PendingReports, Report

NEWEST_LOSS = 0.05  # weight of the newest loss in the displayed mean; tqdm smooths the rows per second
AFTER_EPOCH, WITHIN_EPOCH = 10.0, 60.0  # minimum seconds since the previous line


class ProgressBar(Callback, AbstractContextManager["ProgressBar"]):
    """Show the progress of a run on standard error: a bar on a terminal, else lines (`ProgressLines`).

    A context manager that ends the bar's line.
    """

    def __init__(self) -> None:
        self.bar: Any = None

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Draw an empty bar over the rows of all epochs."""
        self.epochs, self.done = epochs, 0
        self.shown: dict[str, str] = {}
        self.loss: float | None = None
        self.pending = PendingReports()
        self.total = n_rows * epochs
        self._draw(0)

    def resume(self, run: ResumedRun) -> None:
        """Draw the bar again, at the position of the resumed run."""
        self.close()
        self.done = len(run.records)
        self._draw(run.rows)

    def span(self, report: Report) -> None:
        """Advance by the rows of a span."""
        self._count(self.pending.add([report]))
        self.bar.set_postfix(self.shown, refresh=False)
        self.bar.update(report.rows)

    def _count(self, known: Iterable[Sequence[Report]]) -> None:
        """Show a moving average of the losses of reports."""
        for reports in known:
            for report in reports:
                loss = float(report.loss) / report.rows
                self.loss = loss if self.loss is None else self.loss + NEWEST_LOSS * (loss - self.loss)
                self.shown["loss"] = f"{self.loss:.4g}"

    def lost(self, reports: Sequence[Report]) -> None:
        """Move back by the rows that will be trained again."""
        self.bar.update(-sum(report.rows for report in reports))

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Show the metrics of the finished epoch and the number of the next."""
        self._count(self.pending.rest())
        if "P@1" in record:
            self.shown["P@1"] = f"{record['P@1']:.2f}"
        self.bar.set_postfix(self.shown, refresh=False)
        self.done += 1
        self.bar.set_description(f"epoch {min(self.done + 1, self.epochs)}/{self.epochs}")
        return False

    def _draw(self, rows: int) -> None:
        """Start a bar at which `rows` are done."""
        what = f"epoch {min(self.done + 1, self.epochs)}/{self.epochs}"
        in_lines = sys.stderr is not None and not sys.stderr.isatty()
        self.bar = (ProgressLines if in_lines else new_bar)(self.total, what, done=rows)

    def finish(self, center: np.ndarray) -> None:
        """End the bar's line."""
        self.close()

    def close(self) -> None:
        """End the bar's line; may be called again."""
        if self.bar is not None:
            self.bar.close()


class ProgressLines:
    """A replacement for a tqdm bar in logs and notebooks: print a line for each finished epoch.

    There are at least `AFTER_EPOCH` seconds between lines, so that runs of a few seconds print none. During a long
    epoch, a line is printed every `WITHIN_EPOCH` seconds.
    """

    def __init__(self, total: int, what: str, done: int = 0) -> None:
        self.total, self.what = total, what
        self.rows, self.done, self.shown = done, done, dict[str, str]()
        self.started = self.printed = time.monotonic()

    def update(self, rows: int) -> None:
        """Advance by `rows`, which may be negative."""
        self.rows += rows
        self._print(WITHIN_EPOCH)

    def set_postfix(self, shown: dict[str, str], refresh: bool) -> None:
        """Set the values to show with the next line."""
        self.shown = shown

    def set_description(self, what: str) -> None:
        """Print a line for the finished epoch; `what` describes the next one."""
        self._print(AFTER_EPOCH)
        self.what = what

    def close(self) -> None:
        """Do nothing."""

    def _print(self, least: float) -> None:
        """Print a line unless there was one less than `least` seconds ago."""
        now = time.monotonic()
        if now - self.printed < least:
            return
        self.printed, seconds = now, now - self.started
        trained = self.rows - self.done
        left = seconds * (self.total - self.rows) / max(trained, 1)
        values = [f"{name}={value}" for name, value in self.shown.items()]
        rate = f"{trained / seconds:,.0f} rows/s"
        line = f"{self.what}: {', '.join([f'{self.rows / self.total:.0%}', rate, *values, f'{left:.0f} s left'])}"
        with suppress(OSError):  # the reader of the stream may be gone; training continues
            print(line, file=sys.stderr, flush=True)


def new_bar(total: int, what: str, quiet: bool = False, done: int = 0) -> Any:
    """Return a bar over `total` rows, of which `done` are done, on standard error; hidden if that is no terminal."""
    from tqdm import tqdm

    return tqdm(
        total=total, initial=done, desc=what, unit=" rows", unit_scale=True, dynamic_ncols=True, file=sys.stderr,
        disable=quiet or sys.stderr is None or not sys.stderr.isatty(),
    )  # fmt: skip


def in_batches(n_rows: int, size: int, what: str, quiet: bool = False) -> Iterator[np.ndarray]:
    """Yield the numbers of `n_rows` rows in batches of `size`, int64, and show a bar."""
    with new_bar(n_rows, what, quiet) as bar:
        for start in range(0, n_rows, size):
            rows = np.arange(start, min(start + size, n_rows))
            yield rows
            bar.update(len(rows))
