"""The row router: lease spans of an epoch's row order to workers, so that each row is trained exactly once.

A span is leased to a worker until it is committed: at its report where workers update the shared model, at the merge of
the replica that trained it otherwise. What a worker that leaves has not committed is handed out again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

Span = tuple[int, int]


@dataclass(eq=False)
class Router:
    """Spans of [0, n_rows).

    at : where those begin that nobody has had yet. committed : rows whose work is in the shared model. leases : by
    worker. returned : spans that were given back, the last one next.

    work : None to cut by rows; else float64 (n_rows + 1,), the work of the rows before each place of the order, so that
        a batch of `size` rows is cut where its work is that of `size` average rows.
    """

    n_rows: int
    work: np.ndarray | None = None
    at: int = field(default=0, init=False)
    committed: int = field(default=0, init=False)
    leases: dict[int, list[Span]] = field(default_factory=dict, init=False)
    returned: list[Span] = field(default_factory=list, init=False)

    @property
    def empty(self) -> bool:
        """Return whether nothing is left to hand out."""
        return self.at >= self.n_rows and not self.returned

    @property
    def left(self) -> int:
        """Return the rows that are left to hand out."""
        return self.n_rows - self.at + sum(stop - start for start, stop in self.returned)

    def go_on(self, at: int, returned: Iterable[Span]) -> None:
        """Hand out what was left when these were `at` and `returned`, and nobody had a lease."""
        self.at, self.returned = at, list(returned)
        self.committed = self.n_rows - self.left

    def take(self, worker: int, size: int, count: int = 1) -> Span | None:
        """Lease the next `count` batches of `size` rows to a worker, fewer at the end; None when nothing is left.

        A shorter last batch is a span of its own, so that every update knows its rows.
        """
        if self.empty:
            return None
        start, end = self.returned.pop() if self.returned else (self.at, self.n_rows)
        stop = self._cut(start, end, size * count)
        if self.work is None and stop - start > size:
            stop -= (stop - start) % size
        if start == self.at:
            self.at = stop
        elif stop < end:
            self.returned.append((stop, end))
        self.leases.setdefault(worker, []).append((start, stop))
        return start, stop

    def _cut(self, start: int, end: int, size: int) -> int:
        """Return where a span of `size` rows, or of their average work, ends."""
        if self.work is None:
            return min(start + size, end)
        target = self.work[start] + size * self.work[-1] / self.n_rows
        stop = int(np.searchsorted(self.work, target))
        nearer = bool(stop > start + 1 and target - self.work[stop - 1] < self.work[min(stop, self.n_rows)] - target)
        return min(max(stop - nearer, start + 1), end)

    def commit(self, workers: Iterable[int]) -> None:
        """Note that what these workers trained is in the shared model."""
        self.committed += sum(stop - start for w in workers for start, stop in self.leases.pop(w, ()))

    def give_back(self, worker: int) -> None:
        """Take back what a worker that left had not committed."""
        spans = self.leases.pop(worker, [])
        self.returned = _joined([*self.returned, *spans])[::-1]
        if self.returned and self.returned[0][1] == self.at:
            self.at = self.returned.pop(0)[0]


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in ascending order, those that meet as one: whoever takes them shall get whole batches."""
    joined: list[Span] = []
    for start, stop in sorted(spans):
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, stop))
    return joined
