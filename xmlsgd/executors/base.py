"""What an executor is: where steps run and whose clock counts. Waiting happens here and nowhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..learner import Job
    from ..records import Report, Step


class Executor(ABC):
    """Base of all executors. `table` float32 (1 + replicas, n_params): row 0 is the center.

    A replica is written by its worker while that worker is busy, by the coordinator while it is idle. With a shared
    model there are no replicas: all workers write row 0, on purpose and without locks.
    """

    workers: Sequence[int]
    table: np.ndarray

    def __init__(self) -> None:
        self.busy: set[int] = set()

    @property
    def center(self) -> np.ndarray:
        """Return the shared or merged model, float32 (n_params,)."""
        return self.table[0]

    @abstractmethod
    def start(self, job: Job, shared: bool) -> None:
        """Make the table and the learners, compile the kernels, then set the clock to zero.

        A job with a `start` begins there; a single learner then works on its arrays.
        """

    @abstractmethod
    def optimizer_state(self) -> tuple[np.ndarray, int]:
        """Return the optimizer's state, float32, and the steps it has seen: what a later run goes on with."""

    @abstractmethod
    def submit(self, step: Step) -> None:
        """Give a worker a step."""

    @abstractmethod
    def wait(self) -> Report:
        """Return the report of the next finished step, in clock order."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds of the run so far."""

    @abstractmethod
    def close(self) -> None:
        """Release workers and files."""

    def reduce(self, weights: Sequence[float]) -> np.ndarray:
        """Return the sum of weights[w] times replica w, float32 (n_params,)."""
        total = np.zeros_like(self.center)
        for w, weight in zip(self.workers, weights, strict=True):
            total += np.float32(weight) * self.table[1 + w]
        return total

    def blend(self, target: np.ndarray, alpha: float = 1.0, members: Sequence[int] | None = None) -> None:
        """Move the replicas of `members` (default: all) towards `target` by a share `alpha`."""
        for w in self.workers if members is None else members:
            replica = self.table[1 + w]
            if alpha == 1:
                replica[:] = target  # to the bit: synchronous algorithms rely on equal replicas
            else:
                replica += np.float32(alpha) * (target - replica)
