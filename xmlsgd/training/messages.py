"""Messages between coordinator and workers: small frozen dataclasses of numbers, never data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

# Spans that a GPU may be behind the host, so that the host need not wait for the span that the GPU is computing.
PENDING_SPANS = 4


class Sharing(Enum):
    """How workers use the shared model.

    IN_PLACE : workers update the shared model itself, without locks; a device with a memory of its own uses DELTA.
    DELTA : each worker copies the shared model, trains the copy and adds the difference to the shared model.
    REPLICAS : each worker has a model of its own, which the algorithm merges.
    """

    IN_PLACE = "in place"
    DELTA = "delta"
    REPLICAS = "replicas"

    def for_worker(self, shares_memory: bool) -> Sharing:
        """Return how one worker shares the model: `DELTA` instead of `IN_PLACE` if it has a memory of its own."""
        return Sharing.DELTA if self is Sharing.IN_PLACE and not shares_memory else self


@dataclass(frozen=True, slots=True)
class Span:
    """Tells a worker to train a span of rows.

    Attributes
    ----------
    worker, epoch : int
        The worker, and the epoch whose row order counts.
    start, stop : int
        The span: positions in the row order, `stop` excluded.
    learning_rate : float
        Learning rate of each update.
    batch : int, default=0
        Rows of each update; 0 for one update of the whole span.
    seen : int, default=0
        Updates that the optimizer state has seen before.
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
    """Tells a worker to copy the model, and with `state` the optimizer state, from its device to shared parameters.

    The worker answers `COPIED`.
    """

    state: bool


@dataclass(frozen=True, slots=True)
class Invalidate:
    """The message that the coordinator has written the shared model, and with `state` the optimizer state."""

    state: bool


COPIED = "copied"


class PendingLoss:
    """A loss that a GPU may still be computing; `float` waits for it."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = cache(read)

    def __float__(self) -> float:
        return self._read()


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a finished span.

    Attributes
    ----------
    worker, rows, nnz : int
        The worker, the rows of the span and their stored features.
    loss : float or PendingLoss
        Sum of the losses of the rows; a `PendingLoss` of a GPU that trains alone, as reading the loss at once would
        make the host wait at every span.
    seconds : float
        Duration of the span.
    updates : int, default=1
        Updates of the span.
    staleness : float, default=0
        Updates that others made to the shared model between this span's reading and writing; their mean over the
        updates of the span if each of these writes the model in place.
    """

    worker: int
    rows: int
    nnz: int
    loss: float | PendingLoss
    seconds: float
    updates: int = 1
    staleness: float = 0


class PendingReports:
    """A first-in, first-out queue of reports, so that no span has to wait until the GPU has computed the last loss.

    Reports with a `PendingLoss` come out when `PENDING_SPANS` later ones have been added, others at once.
    """

    def __init__(self) -> None:
        self._waiting: deque[Sequence[Report]] = deque()

    def add(self, reports: Sequence[Report]) -> Iterator[Sequence[Report]]:
        """Add reports that belong together; yield those whose losses can be read."""
        self._waiting.append(reports)
        pending = any(isinstance(report.loss, PendingLoss) for report in reports)
        while len(self._waiting) > (PENDING_SPANS if pending else 0):
            yield self._waiting.popleft()

    def rest(self) -> Iterator[Sequence[Report]]:
        """Yield all that are left; reading their losses waits for the GPU."""
        while self._waiting:
            yield self._waiting.popleft()


@dataclass(frozen=True, slots=True)
class Left:
    """The event that a worker left the run, and why; what it did since its last merge is lost."""

    worker: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """The event that a worker joined the run, with a copy of the shared model."""

    worker: int


Event = Report | Left | Joined
