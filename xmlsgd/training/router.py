"""The row router: lease spans of an epoch's row order to workers, so that each row is trained exactly once.

A span is leased to a worker until it is committed: at its report where workers update the shared model, at the merge of
the replica that trained it otherwise. What a worker that leaves has not committed is handed out again.

Which worker gets rows is the algorithm's decision (`Algorithm.batch_size`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

Bounds = tuple[int, int]  # of a span: start and stop


@dataclass(eq=False)
class Router:
    """Leases spans (start, stop) of positions in the row order of an epoch.

    Attributes
    ----------
    n_rows : int
        Rows of the epoch.
    cost_before : ndarray of shape (n_rows + 1,), float64, optional
        Cost of all rows before each position. If given, a batch of `size` rows ends where its cost is that of `size`
        average rows; None to cut by rows.
    at : int
        First position that has never been leased.
    committed : int
        Rows whose work is in the shared model.
    leases : dict of int to list of (int, int)
        Spans of each worker that are not committed.
    returned : list of (int, int)
        Spans that were given back; the last one is leased next.
    """

    n_rows: int
    cost_before: np.ndarray | None = None
    at: int = field(default=0, init=False)
    committed: int = field(default=0, init=False)
    leases: dict[int, list[Bounds]] = field(default_factory=dict, init=False)
    returned: list[Bounds] = field(default_factory=list, init=False)

    @property
    def rows_left(self) -> int:
        """Return the rows that are left to hand out."""
        return self.n_rows - self.at + sum(stop - start for start, stop in self.returned)

    def resume(self, at: int, returned: Iterable[Bounds]) -> None:
        """Continue from a saved `at` and `returned`, when there were no leases."""
        self.at, self.returned = at, list(returned)
        self.committed = self.n_rows - self.rows_left

    def take(self, worker: int, size: int, updates: int = 1) -> Bounds | None:
        """Lease a span of `updates` batches of `size` rows to a worker, fewer at the end; None if nothing is left.

        A shorter last batch is a span of its own, so that all updates of a span have equally many rows.
        """
        if not self.rows_left:
            return None
        start, end = self.returned.pop() if self.returned else (self.at, self.n_rows)
        stop = self._cut(start, end, size * updates)
        if self.cost_before is None and stop - start > size:
            stop -= (stop - start) % size
        if start == self.at:
            self.at = stop
        elif stop < end:
            self.returned.append((stop, end))
        self.leases.setdefault(worker, []).append((start, stop))
        return start, stop

    def _cut(self, start: int, end: int, size: int) -> int:
        """Return where a span of `size` rows, or of their average cost, ends."""
        if (cost := self.cost_before) is None:
            return min(start + size, end)
        target = cost[start] + size * cost[-1] / self.n_rows
        stop = int(np.searchsorted(cost, target))
        nearer = bool(stop > start + 1 and target - cost[stop - 1] < cost[min(stop, self.n_rows)] - target)
        return min(max(stop - nearer, start + 1), end)

    def commit(self, workers: Iterable[int]) -> None:
        """End the leases of these workers: their work is in the shared model."""
        self.committed += sum(stop - start for w in workers for start, stop in self.leases.pop(w, ()))

    def give_back(self, worker: int) -> None:
        """Take back the leases of a worker that left, to hand them out again."""
        spans = self.leases.pop(worker, [])
        self.returned = _joined([*self.returned, *spans])[::-1]
        if self.returned and self.returned[0][1] == self.at:
            self.at = self.returned.pop(0)[0]


def _joined(spans: Iterable[Bounds]) -> list[Bounds]:
    """Return spans in ascending order with adjacent ones joined, so that they are cut into whole batches."""
    joined: list[Bounds] = []
    for start, stop in sorted(spans):
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, stop))
    return joined
