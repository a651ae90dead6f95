"""The interface of algorithms: policies that decide batch sizes, learning rates and merges without seeing data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..data.csr import Dataset
from ..data.validation import Checked, above_zero, at_least
from ..training.merging import Comm
from ..training.messages import Report, Sharing


@dataclass
class Algorithm(Checked, ABC):
    """Base class of algorithms: a picklable dataclass of hyperparameters; `start` sets the state of a run.

    batch : rows of an update, or of the largest updates if sizes differ, >= 1. learning_rate : learning rate of an
    update of `batch` rows, > 0.

    The engine calls the methods in this order: `start`; for every idle worker `batch_size`, `updates_per_span`,
    `learning_rate_of` and `submitted`; `overlap`; for every event `finished`, `worker_left` or `worker_joined`; then
    `merge_due` and `merge`; `end_epoch` when all rows of an epoch are in the model.
    """

    batch: int = at_least(256, 1)
    learning_rate: float = above_zero(6e-3)

    # These are not fields.
    reason = ""  # why `choose_algorithm` chose the algorithm
    has_trials = False  # whether a run may have trials (`trial`), which need a copy of the model and optimizer states

    @classmethod
    def published(cls, batch: int = 256, learning_rate: float = 6e-3) -> Algorithm:
        """Return the algorithm with the settings of its paper. Override it in a subclass that is of another paper."""
        return cls(batch, learning_rate)

    @property
    def sharing(self) -> Sharing:
        """Return how workers use the shared model."""
        return Sharing.REPLICAS

    @property
    def pauses_for_checkpoint(self) -> bool:
        """Return whether a checkpoint has to hold workers back, because no merge need include all of them."""
        return self.sharing is not Sharing.REPLICAS

    @property
    def trial(self) -> int | None:
        """Return the number of the current trial, or None while the model is trained for good.

        A trial may diverge. When it ends, the engine restores the model from before the first trial and hands out the
        rows of the trial again.
        """
        return None

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the number of merge states, vectors of the model's size, that each run needs."""
        return 0

    def most_rows(self, n_workers: int) -> int:
        """Return the most rows of an update with `n_workers` workers, for estimates of memory."""
        return self.batch

    def measure_costs(self, dataset: Dataset) -> np.ndarray | None:
        """Return the cost of each row, float64 (n_rows,), to cut batches by cost; None to cut them by rows.

        Called before `start`.
        """
        return None

    def check_workers(self, n_workers: int) -> None:
        """Raise `DataError` for options that `n_workers` workers, including those that join later, cannot meet."""

    def check_devices(self, devices: Sequence[str]) -> None:
        """Raise `DataError` for options that workers on these devices, a name each, cannot meet."""
        self.check_workers(len(devices))

    @abstractmethod
    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Set the state of a run with these workers and epochs of `n_rows` rows.

        Also called when a run resumes from a checkpoint, possibly in a later epoch. Checkpoints do not hold this state:
        counts of epochs and merges begin at 0 again.
        """

    def batch_size(self, w: int, now: float) -> int:
        """Return the rows of the next update of worker `w` at second `now` of the run; 0 makes it wait."""
        return self.batch

    def updates_per_span(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return the number of updates of the next span of worker `w`, more than 1 to save messages.

        rows_left : rows of the epoch that are left to hand out. in_place : whether the worker writes the shared model
        itself, at each update.
        """
        return 1

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return the learning rate of an update of `rows` rows on worker `w`, before the schedule's factor."""
        return self.learning_rate

    def submitted(self, w: int, rows: int, now: float) -> None:
        """Note that worker `w` got a span of `rows` rows."""

    def finished(self, report: Report) -> None:
        """Note that a worker has finished a span."""

    @abstractmethod
    def worker_left(self, w: int) -> None:
        """Note that worker `w` has left; what it did since its last merge is lost."""

    @abstractmethod
    def worker_joined(self, w: int) -> None:
        """Note that worker `w` has joined, with a copy of the shared model."""

    def deadline(self, now: float) -> float | None:
        """Return the second of the run at which to call `merge_due` even if there is no event before."""
        return None

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return the workers, none of them busy, whose replicas are to be merged now."""
        return ()

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Merge the replicas of `members`; needed with `Sharing.REPLICAS`.

        At the end of an epoch `members` are all workers, including those that did no work since their last merge.
        """
        raise NotImplementedError(f"{type(self).__name__} trains replicas but defines no merge; define it, or sharing")

    def overlap(self, comm: Comm, busy: Collection[int]) -> None:
        """Do the part of a merge that can be done while the workers in `busy` train; if there are none, all of it."""

    def end_epoch(self, comm: Comm) -> None:
        """Note that all rows of the epoch are in the model; no worker is busy."""

    def notes(self) -> dict[str, object]:
        """Return what to add to the epoch record about the algorithm: choices, settings, means."""
        return {}

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return what to add to the epoch record about each worker, by name, such as the rows of its next batch."""
        return {}
