"""Adaptive Hogbatch: batch sizes follow the update counts, so that CPU and GPU make equally many updates.

Ma, Rusu 2020 (arXiv 2004.08771), Algorithm 2. Equal counts can be reached if the ranges of update rates
that the bounds allow overlap; otherwise sizes rest at opposite bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..data.validation import at_least, ranged
from ..errors import DataError
from ..training.messages import Report
from .hogbatch import Hogbatch


@dataclass
class AdaptiveHogbatch(Hogbatch):
    """A worker behind all others in updates gets smaller tasks, one ahead of all others larger ones.

    factor : of a change of size (alpha in the paper), >= 1; 1 leaves Algorithm 1. survival : share of the concurrent
    updates of a CPU worker that survive conflicts (beta), in (0, 1]. low, high : bounds of a task's rows, by worker
    like `sizes`; () for an eighth of the first size and for eight times it. A first size outside them is clamped.
    """

    factor: float = at_least(2.0, 1)
    survival: float = ranged(1.0, "in (0, 1]", lambda value: 0 < value <= 1)
    low: tuple[int, ...] = at_least((), 1)
    high: tuple[int, ...] = at_least((), 1)

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Set sizes and bounds; raise `DataError` for a worker whose bounds leave no size."""
        super().start(workers, n_rows)
        self.bounds: dict[int, tuple[int, int]] = {}
        for w in workers:
            self._set_bounds(w)

    def tasks(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return one: after each the size may change."""
        return 1

    def first_bounds(self, w: int) -> tuple[int, int]:
        """Return the smallest and the largest task of worker `w`, with a row for each of its threads."""
        first = self.first_size(w)
        low = max(self.low[w % len(self.low)] if self.low else first // 8, self.threads_of(w))
        high = self.high[w % len(self.high)] if self.high else max(8 * first, low)
        if low > high:
            raise DataError(f"low, with a row a thread, must be at most high, got {low} and {high} for worker {w}")
        return low, high

    def finished(self, report: Report) -> None:
        """Count a task's updates that survive their conflicts; then change the size of the worker's next one."""
        updates = report.updates
        self.done[report.worker] += updates * self.survival if updates > 1 else updates
        w = report.worker
        others = [count for v, count in self.done.items() if v != w]
        if not others:
            return
        low, high = self.bounds[w]
        if self.done[w] < min(others):
            self.size[w] = max(low, self.size[w] / self.factor)
        elif self.done[w] > max(others):
            self.size[w] = min(high, self.size[w] * self.factor)

    def joined(self, w: int) -> None:
        """Give a new worker its first size and bounds."""
        super().joined(w)
        self._set_bounds(w)

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return also the updates that are thought to have survived, by which sizes change."""
        return {**super().worker_notes(), "survived": {w: round(count, 1) for w, count in self.done.items()}}

    def _set_bounds(self, w: int) -> None:
        """Set the bounds of worker `w`, and its size within them."""
        low, high = self.bounds[w] = self.first_bounds(w)
        self.size[w] = min(max(self.size[w], low), high)
