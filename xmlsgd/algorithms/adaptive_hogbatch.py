"""Adaptive Hogbatch: batch sizes follow the update counts, so that CPU and GPU make equally many updates.

Ma, Rusu 2020 (arXiv 2004.08771), Algorithm 2. Equal counts can be reached if the ranges of update rates
that the bounds allow overlap; otherwise sizes rest at opposite bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..data.validation import at_least
from ..errors import DataError
from ..training.messages import Report
from .hogbatch import Hogbatch, of_worker

ALPHA = 2.0  # factor by which a size changes


@dataclass
class AdaptiveHogbatch(Hogbatch):
    """A worker behind all others in updates gets smaller tasks, one ahead of all others larger ones.

    low, high : least and most rows of a task, by worker like `sizes`; () for an eighth of the first size, and for eight
    times the first size. A first size outside the bounds is clamped.
    """

    low: tuple[int, ...] = at_least((), 1)
    high: tuple[int, ...] = at_least((), 1)

    def tasks(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return 1, as the size may change after each task."""
        return 1

    def bounds(self, w: int) -> tuple[int, int]:
        """Return the least and most rows of a task of worker `w`; the least is at least one row per thread."""
        first = super().first_size(w)
        low = max(of_worker(w, self.low) if self.low else first // 8, self.threads_of(w))
        high = of_worker(w, self.high) if self.high else max(8 * first, low)
        if low > high:
            raise DataError(f"low, with a row a thread, must be at most high, got {low} and {high} for worker {w}")
        return low, high

    def first_size(self, w: int) -> int:
        """Return the first size of worker `w`, within its bounds; raise `DataError` if the bounds contradict."""
        low, high = self.bounds(w)
        return min(max(super().first_size(w), low), high)

    def most_rows(self, n_workers: int) -> int:
        """Return the rows of the largest update that the bounds allow."""
        return max(self.bounds(w)[1] // self.threads_of(w) for w in range(n_workers))

    def finished(self, report: Report) -> None:
        """Count the updates of a task; then change the size of the worker's next task.

        Of a CPU's updates the paper counts the share beta that survives conflicts, 1 by default, as here.
        """
        super().finished(report)
        w = report.worker
        others = [count for v, count in self.update_counts.items() if v != w]
        if not others:
            return
        low, high = self.bounds(w)
        if self.update_counts[w] < min(others):
            self.size[w] = max(low, self.size[w] / ALPHA)
        elif self.update_counts[w] > max(others):
            self.size[w] = min(high, self.size[w] * ALPHA)
