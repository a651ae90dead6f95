"""Messages between coordinator and workers: small frozen dataclasses of numbers, never data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

PENDING_STEPS = 4  # that a GPU may be behind the host, which so never waits for the step that the GPU is at


class Sharing(Enum):
    """How workers and the shared model meet.

    IN_PLACE : workers update the shared model itself, without locks; those whose device has another memory, as DELTA.
    DELTA : each copies the shared model, steps on the copy and adds the difference, weighed by the algorithm.
    REPLICAS : each has a model of its own, which the algorithm merges.
    """

    IN_PLACE = "in place"
    DELTA = "delta"
    REPLICAS = "replicas"

    def over(self, shares_memory: bool) -> Sharing:
        """Return how one worker shares the model: `DELTA` in place of `IN_PLACE` if it has a memory of its own."""
        return Sharing.DELTA if self is Sharing.IN_PLACE and not shares_memory else self


@dataclass(frozen=True, slots=True)
class Step:
    """A span for one worker: rows `start` to `stop` of the order of `epoch`, in updates of `batch` rows each.

    `batch` 0 makes the span one update. `learning_rate` is that of each update. `seen` are the updates that the
    optimizer's state has seen before.
    """

    worker: int
    epoch: int
    start: int
    stop: int
    learning_rate: float
    batch: int = 0
    seen: int = 0

    @property
    def rows(self) -> int:
        """Return the rows of the span."""
        return self.stop - self.start

    @property
    def updates(self) -> int:
        """Return the number of updates of the span."""
        return -(-self.rows // self.batch) if self.batch else 1


@dataclass(frozen=True, slots=True)
class Fetch:
    """Copy the model that a device has trained to the table, and the optimizer `state`; answered by `COPIED`."""

    state: bool


@dataclass(frozen=True, slots=True)
class Invalidate:
    """The coordinator has written the model in the table, and the optimizer `state`."""

    state: bool


COPIED = "copied"


class PendingLoss:
    """A loss that a GPU has yet to compute: `float` waits for it."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = cache(read)

    def __float__(self) -> float:
        return self._read()


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says of a finished step: `loss` is the sum over its rows, `nnz` their stored features.

    The loss of a GPU that trains alone is a `PendingLoss`; who reads it at once waits for the GPU at every step.

    `staleness` is the number of updates that others made to the shared model between this step's reading and writing;
    where its updates write the model in place, the mean of each of them.
    """

    worker: int
    rows: int
    nnz: int
    loss: float | PendingLoss
    seconds: float
    updates: int = 1
    staleness: float = 0


class PendingReports:
    """A queue of reports: those with a `PendingLoss` come out `PENDING_STEPS` later, all others at once, in order.

    So no step waits for the GPU to compute the loss of the one before.
    """

    def __init__(self) -> None:
        self._waiting: deque[Sequence[Report]] = deque()

    def add(self, reports: Sequence[Report]) -> Iterator[Sequence[Report]]:
        """Add reports that belong together; yield those whose losses can be read."""
        self._waiting.append(reports)
        pending = any(isinstance(report.loss, PendingLoss) for report in reports)
        while len(self._waiting) > (PENDING_STEPS if pending else 0):
            yield self._waiting.popleft()

    def rest(self) -> Iterator[Sequence[Report]]:
        """Yield all that are left; reading their losses waits for the GPU."""
        while self._waiting:
            yield self._waiting.popleft()


@dataclass(frozen=True, slots=True)
class Left:
    """A worker is gone; what it did since its last merge is lost with it."""

    worker: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker has come, with a copy of the shared model."""

    worker: int


Event = Report | Left | Joined
