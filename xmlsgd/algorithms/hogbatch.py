"""CPU+GPU Hogbatch: workers of unequal speed update one shared model with batches of unequal size.

Ma, Rusu 2020 (arXiv 2004.08771), Algorithm 1: small batches on CPUs with many threads, large ones on GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from ..data.validation import at_least
from ..errors import DataError
from .hogwild import Hogwild
from .rounds import tapered


@dataclass
class Hogbatch(Hogwild):
    """A task of worker w has `sizes[w]` rows, in `threads[w]` updates at a learning rate linear in their rows.

    batch : rows of an update at which the learning rate is `learning_rate`. sizes : rows of a task, a number for each
    worker or one for all; () for `batch` rows per update. threads : updates of a task, likewise. In the paper, each
    thread of a CPU makes one of them at the same time; here they follow one another.
    """

    sizes: tuple[int, ...] = ()
    threads: tuple[int, ...] = at_least((1,), 1)

    @classmethod
    def published(cls, batch: int = 256, learning_rate: float = 6e-3) -> Hogbatch:
        """Return the defaults: the paper's sizes suit its devices, its batches and learning rates suit its data."""
        return cls(batch, learning_rate)

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges, and for sizes that hold no row for each thread."""
        super().__post_init__()
        if not self.threads:
            raise DataError(f"threads must be at least 1, got {self.threads}")
        for w in range(max(len(self.sizes), len(self.threads))):
            if self.sizes and of_worker(w, self.sizes) < of_worker(w, self.threads):
                raise DataError(f"sizes must hold a row for each thread, got {self.sizes} for threads {self.threads}")

    def check_workers(self, n_workers: int) -> None:
        """Raise `DataError` unless numbers are of each worker, or one is of all."""
        for each in fields(self):
            given = getattr(self, each.name)
            if isinstance(given, tuple) and len(given) not in (0, 1, n_workers):
                raise DataError(f"{each.name} must have a number for each worker or one, got {given} for {n_workers}")

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Set the sizes of tasks."""
        super().start(workers, n_rows)
        self.size: dict[int, float] = {w: self.first_size(w) for w in workers}

    def first_size(self, w: int) -> int:
        """Return the rows of the first task of worker `w`."""
        return of_worker(w, self.sizes) if self.sizes else self.batch * self.threads_of(w)

    def most_rows(self, n_workers: int) -> int:
        """Return the rows of the largest update of any worker."""
        return max(self.first_size(w) // self.threads_of(w) for w in range(n_workers))

    def threads_of(self, w: int) -> int:
        """Return the threads of worker `w`, which are the updates of its tasks."""
        return of_worker(w, self.threads)

    def tasks(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return the number of tasks of a span: 1 if each span pulls and pushes the model, else as many as fill it."""
        if not in_place:
            return 1
        return max(tapered(self.span, rows_left, len(self.update_counts)) // int(self.size[w]), 1)

    def updates_per_span(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return the number of updates of the tasks of a span."""
        return self.tasks(w, rows_left, in_place) * self.threads_of(w)

    def batch_size(self, w: int, now: float) -> int:
        """Return the rows of an update."""
        return max(int(self.size[w]) // self.threads_of(w), 1)

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return eta * rows / batch, but at most eta: with a higher rate, batches of 1,024 rows diverged."""
        return self.learning_rate * min(rows / self.batch, 1)

    def worker_joined(self, w: int) -> None:
        """Give a new worker its first size."""
        super().worker_joined(w)
        self.size[w] = self.first_size(w)

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return the sizes of tasks."""
        return {"batch": {w: int(size) for w, size in self.size.items()}}


def of_worker(w: int, numbers: Sequence[int]) -> int:
    """Return the number of worker `w`, or the one of all."""
    return numbers[w % len(numbers)]
