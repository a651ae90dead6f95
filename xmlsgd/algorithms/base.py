"""The interface of algorithms: policies that decide batch sizes, learning rates and merges, never seeing data."""

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
    """Base of all algorithms: a picklable dataclass of hyperparameters; run state is made in `start`.

    batch : rows of an update, or the largest where sizes differ, >= 1. learning_rate : at `batch` rows, > 0.

    The engine calls the methods in this order: `start`; for every idle worker `batch_size`, `updates`,
    `learning_rate_of` and `submitted`; `overlap`; for every event `finished`, `left` or `joined`; then `merge_due` and
    `merge`; `end_epoch` when all rows of an epoch are in the model.
    """

    batch: int = at_least(256, 1)
    learning_rate: float = above_zero(6e-3)

    # No fields: why `choose_algorithm` chose it, and whether trials need the model and the states kept aside.
    reason = ""
    has_trials = False

    @classmethod
    def published(cls, batch: int = 256, learning_rate: float = 6e-3) -> Algorithm:
        """Return the algorithm with the settings of its paper; override those of a base class of another paper."""
        return cls(batch, learning_rate)

    @property
    def sharing(self) -> Sharing:
        """Return how workers and the shared model meet."""
        return Sharing.REPLICAS

    @property
    def overlaps(self) -> bool:
        """Return whether replicas never wait for all others, so that workers have to be held back for a checkpoint."""
        return False

    @property
    def trial(self) -> int | None:
        """Return the number of the trial under way, None while the model is trained for good.

        What a trial trains may diverge. When it ends the engine puts the model back to what it was before the first
        trial, and the rows of the trial are given out again.
        """
        return None

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return how many vectors of the model's size merges of `n_workers` keep at most (`ParameterSlice.state`)."""
        return 0

    def row_work(self, dataset: Dataset) -> np.ndarray | None:
        """Return the work of each row, float64 (n_rows,), if batches are to be cut by work. Called before `start`."""
        return None

    @abstractmethod
    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Make the run state for these workers and epochs of `n_rows` rows.

        A run that resumes from a checkpoint begins here too, and not at its first epoch: checkpoints hold no run state,
        so whatever counts epochs or merges is at 0 again.
        """

    def batch_size(self, w: int, now: float) -> int:
        """Return the rows of the next update of worker `w` at second `now` of the run; 0 makes it wait."""
        return self.batch

    def updates(self, w: int, rows_left: float, in_place: bool) -> int:
        """Return the updates of the next span of worker `w`: many where they are so short that messages would cost.

        rows_left : rows of the epoch that no worker has yet. in_place : whether the worker writes the shared model
        itself, between reports too.
        """
        return 1

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return the learning rate of an update of `rows` rows on worker `w`, before the schedule's factor."""
        return self.learning_rate

    def submitted(self, w: int, rows: int, now: float) -> None:
        """Note that worker `w` got a span of `rows` rows."""

    def finished(self, report: Report) -> None:
        """Note that a span is done."""

    @abstractmethod
    def left(self, w: int) -> None:
        """Note that worker `w` is gone, and with it what it did since its last merge."""

    @abstractmethod
    def joined(self, w: int) -> None:
        """Note that worker `w` has come, with a copy of the shared model."""

    def deadline(self, now: float) -> float | None:
        """Return the second of the run at which `merge_due` is to be asked even if nothing happens before."""
        return None

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return the workers, none of them busy, whose replicas are to be merged now."""
        return ()

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Merge the replicas of `members`; at the end of an epoch, of all workers.

        Whoever has done no work since its last merge is among them then. Needed with `Sharing.REPLICAS`.
        """
        raise NotImplementedError(f"{type(self).__name__} trains replicas but defines no merge; define it, or sharing")

    def overlap(self, comm: Comm, busy: Collection[int]) -> None:
        """Do what of merges can be done while the workers in `busy` learn; all of it if there are none."""

    def end_epoch(self, comm: Comm) -> None:
        """Note that all rows of the epoch are in the model; no worker is busy."""

    def notes(self) -> dict[str, object]:
        """Return what the record of an epoch shall tell of the run state: choices, settings, means."""
        return {}

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return what it shall tell of each worker, by name: rows of its next batch, its weight in the last merge."""
        return {}
