"""CPU+GPU Hogbatch: workers of unequal speed update one shared model with batches of unequal size.

Ma, Rusu 2020 (arXiv 2004.08771), Algorithm 1: small batches where threads are many, large ones on GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..data.validation import at_least, ranged
from ..errors import DataError
from .hogwild import Hogwild
from .rounds import tapered


@dataclass
class Hogbatch(Hogwild):
    """A task of worker w has `sizes[w]` rows in `threads[w]` updates, each at a learning rate linear in its rows.

    batch : rows of an update at which the learning rate is `learning_rate`. sizes : rows of a task, by worker, repeated
    for further workers; () for `batch` an update. threads : equal updates of a task, likewise: in the paper a CPU's
    threads make one each at once, here one follows the other. cap : the largest learning rate; None for
    `learning_rate`, so that it is linear below `batch` only (uncapped, batches of 1,024 rows diverged).
    """

    sizes: tuple[int, ...] = ()
    threads: tuple[int, ...] = at_least((1,), 1)
    cap: float | None = ranged(None, "above 0", lambda value: value > 0)

    @classmethod
    def published(cls, batch: int = 256, learning_rate: float = 6e-3) -> Hogbatch:
        """Return the defaults: sizes in the paper are those of its devices, batches and learning rates its data's."""
        return cls(batch, learning_rate)

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges, and for sizes that hold no row for each thread."""
        super().__post_init__()
        if not self.threads:
            raise DataError(f"threads must be at least 1, got {self.threads}")
        n = max(len(self.sizes), len(self.threads))
        for w in range(n if self.sizes else 0):
            if self.sizes[w % len(self.sizes)] < self.threads[w % len(self.threads)]:
                raise DataError(f"sizes must hold a row for each thread, got {self.sizes} for threads {self.threads}")

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Set the sizes of tasks."""
        super().start(workers, n_rows)
        self.size: dict[int, float] = {w: self.first_size(w) for w in workers}

    def first_size(self, w: int) -> int:
        """Return the rows of the first task of worker `w`."""
        return self.sizes[w % len(self.sizes)] if self.sizes else self.batch * self.threads_of(w)

    def threads_of(self, w: int) -> int:
        """Return the threads of worker `w`: an update each in a task."""
        return self.threads[w % len(self.threads)]

    def tasks(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return the tasks of a message: one where it pulls and pushes the model, else as many as fill it."""
        if not in_place:
            return 1
        return max(tapered(self.span, rows_left, len(self.done)) // int(self.size[w]), 1)

    def updates(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return the updates of the tasks of a message."""
        return self.tasks(w, rows_left, in_place) * self.threads_of(w)

    def batch_size(self, w: int, now: float) -> int:
        """Return the rows of an update."""
        return max(int(self.size[w]) // self.threads_of(w), 1) if self.may_start(w) else 0

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return eta_ref * rows / b_ref, at most `cap`."""
        return min(self.learning_rate * rows / self.batch, self.learning_rate if self.cap is None else self.cap)

    def joined(self, w: int) -> None:
        """Give a new worker its first size."""
        super().joined(w)
        self.size[w] = self.first_size(w)

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return the sizes of tasks."""
        return {"batch": {w: int(size) for w, size in self.size.items()}}
