"""The interface of algorithms: policies that decide batch sizes, learning rates and merges, never seeing data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..data.validation import check_field_types
from ..errors import DataError
from ..training.messages import Sharing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np

    from ..data.csr import Dataset
    from ..training.merging import Rule
    from ..training.messages import Report

# A span is at most of this part of an equal share of the rows that are left of an epoch. On the simulated clock 1 to 8
# keep devices equally busy (Hogwild on S2, S4 and S7 within 0.6 %, local SGD within 2); 16 takes twice the messages.
TAPER = 4


class Comm(Protocol):
    """What an algorithm may do with replicas when it merges; an executor is one."""

    def merge(self, rule: Rule, members: Collection[int], memory: int = 0, equal: bool = True) -> None:
        """Apply `rule` to every slice of the center and of the replicas of `members` (`merging.Merger.run`)."""
        ...

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state, that of a worker if one is given, to a copy of the center."""
        ...

    def set_aside(self) -> None:
        """Keep the center and the optimizer states."""
        ...

    def put_back(self) -> None:
        """Put center, replicas and states back to what was set aside, and clear merge states; no worker may be busy."""
        ...

    @property
    def n_params(self) -> int:
        """Return the number of parameters."""
        ...

    def norm(self, worker: int) -> float:
        """Return the Euclidean norm of a replica."""
        ...

    def now(self) -> float:
        """Return the seconds of the run so far."""
        ...


@dataclass
class Situation:
    """What the engine tells an algorithm before it asks; the engine writes it.

    now : seconds of the run so far. left_rows : rows of the epoch that nobody has yet. concurrent : whether all workers
    write the shared model itself, between reports too. done_rows : of the first epoch, those that the run had trained
    on before it was cut short.
    """

    now: float = 0.0
    left_rows: float = math.inf
    concurrent: bool = False
    done_rows: int = 0


@dataclass
class Algorithm:
    """Base of all algorithms: a picklable dataclass of hyperparameters; run state is made in `start`.

    situation : what the engine tells it; `Auto` shares its own with its choice.

    batch : rows of an update, or the largest where sizes differ, >= 1.
    learning_rate : learning rate at `batch` rows, > 0.
    """

    batch: int = 256
    learning_rate: float = 6e-3

    def __post_init__(self) -> None:
        """Raise `DataError` for fields of the wrong kind and for numbers outside their ranges."""
        check_field_types(self)
        if self.batch < 1:
            raise DataError(f"batch must be at least 1, got {self.batch}")
        if not 0 < self.learning_rate < math.inf:
            raise DataError(f"learning_rate must be finite and above 0, got {self.learning_rate}")
        self.situation = Situation()

    @property
    def sharing(self) -> Sharing:
        """Return how workers and the shared model meet."""
        return Sharing.REPLICAS

    @property
    def trial(self) -> int | None:
        """Return the number of the trial under way, None while the model is trained for good.

        What a trial trains may diverge, and is given out again when another trial or training follows: the algorithm
        has put the model back by then. Of a run that begins with a trial the model is set aside.
        """
        return None

    @property
    def tries(self) -> bool:
        """Return whether there will be trials, for which the model and the optimizer states are kept aside."""
        return False

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return how many vectors of the model's size merges of `n_workers` keep at most (`ParameterSlice.state`)."""
        return 0

    def weigh_rows(self, dataset: Dataset) -> np.ndarray | None:
        """Find out what a row costs; return the work of each, float64 (n_rows,), if batches are to be cut by work.

        Called before `start`.
        """
        return None

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Make the run state for these workers and epochs of `n_rows` rows."""

    def batch_size(self, w: int) -> int:
        """Return the rows of the next update of worker `w`; 0 makes it wait."""
        return self.batch

    def updates(self, w: int) -> int:
        """Return the updates of the next span of worker `w`: many where they are so short that messages would cost."""
        return 1

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return the learning rate of an update of `rows` rows on worker `w`, before the schedule's factor."""
        return self.learning_rate

    def submitted(self, w: int, rows: int) -> None:
        """Note that worker `w` got a span of `rows` rows."""

    def finished(self, report: Report) -> None:
        """Note that a span is done."""

    def weight(self, report: Report) -> float:
        """Return the weight of a finished span's difference in the shared model (`Sharing.DELTA`)."""
        return 1.0

    def left(self, w: int) -> None:
        """Note that worker `w` is gone, and with it what it did since its last merge."""

    def joined(self, w: int) -> None:
        """Note that worker `w` has come, with a copy of the shared model."""

    def deadline(self) -> float | None:
        """Return the second of the run at which `merge_due` is to be asked even if nothing happens before."""
        return None

    def merge_due(self, busy: Collection[int]) -> Collection[int]:
        """Return the workers, none of them busy, whose replicas are to be merged now."""
        return ()

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Merge the replicas of `members`; at the end of an epoch, of all that have trained since their last merge."""

    def notes(self) -> dict[str, object]:
        """Return what the record of an epoch shall tell of the run state: choices, settings, means."""
        return {}

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return what it shall tell of each worker, by name: rows of its next batch, its weight in the last merge."""
        return {}


def tapered(rows: float, left: float, n_workers: int) -> int:
    """Return the rows of a span of many updates: fewer than `rows` where so few are left that others would wait."""
    return int(rows if n_workers == 1 else min(rows, left / (TAPER * n_workers)))
