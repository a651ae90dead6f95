"""Omnivore: workers in compute groups, synchronous inside a group, asynchronous between groups.

Hadjis, Zhang, Mitliagkas, Iter, Re 2016 (arXiv 1606.04487). A group reads the model w, splits a batch among its members
in proportion to their speed, and updates v <- m v - eta G, w <- w + v, whatever others did meanwhile.

Asynchrony acts like momentum: with g groups a gradient is on average g - 1 updates old, which moves the expected model
like momentum of 1 - 1/g; as long as that is below the best momentum, it costs next to nothing. So groups, m and eta are
tuned together (`omnivore_tuner.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..data.csr import Dataset
from ..data.validation import at_least, below_one, check_choice, ranged
from ..errors import DataError
from ..training.merging import Comm, ParameterSlice
from ..training.messages import Report
from .base import Algorithm
from .compute_groups import ComputeGroups
from .omnivore_tuner import BEST_MOMENTUM, GroupTuner, Phase, Result, Setting, divisors
from .outer import merges_to_fade

# Multiply-adds a hidden unit: a stored feature takes part forward and in a gradient; a label in two gradients.
PER_NNZ, PER_LABEL = 2.0, 3.0
SCORE_WINDOW = 10  # losses of the last updates that a trial is judged by (released code)


@dataclass
class Omnivore(Algorithm):
    """Groups of workers split a batch by speed and update the model together, each without waiting for other groups.

    Parameters
    ----------
    batch : int
        B, rows of an update, those of a whole group.
    learning_rate : float
        eta; with `tune` the largest that is tried.
    groups : int or None
        g, of no more use than there are workers; None for as many as divide the workers evenly and whose implicit
        momentum 1 - 1/g is within that which is best for one group.
    momentum : float or None
        m, in [0, 1); None for what asynchrony lacks of that, 0.9 - (1 - 1/g), at least 0.
    split : {"work", "rows"}
        What members get in proportion to speed; "work" counts features.
    tune : bool
        Whether groups, momentum and learning rate are found by trials, whose rows are trained again: at first, and from
        the next epoch on after every `long_seconds`.
    slice_seconds : float
        What a trial takes, > 0; less where less is left of the epoch.
    """

    groups: int | None = at_least(None, 1)
    momentum: float | None = below_one(None)
    split: str = "work"
    tune: bool = False
    slice_seconds: float = ranged(60.0, "above 0", lambda value: value > 0)

    long_seconds = 10_000.0  # no field: seconds from trials to the next ones (released code)

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges."""
        super().__post_init__()
        self.has_trials = self.tune
        check_choice("split", self.split, ("work", "rows"))
        if self.tune and not (self.groups is None and self.momentum is None):
            raise DataError(f"tune finds groups and momentum, got groups {self.groups} and momentum {self.momentum}")

    @classmethod
    def published(cls, batch: int = 256, learning_rate: float = 6e-3) -> Omnivore:
        """Return the algorithm with the paper's optimizer of groups, momentum and learning rate."""
        return cls(batch, learning_rate, tune=True)

    @property
    def overlaps(self) -> bool:
        """Return whether there are groups that do not wait for each other."""
        return len(self.compute.members) > 1

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the velocity and what each group has read."""
        return 1 + (n_workers if self.tune else min(self.given_setting(n_workers).groups, n_workers))

    def row_work(self, dataset: Dataset) -> np.ndarray | None:
        """Return the multiply-adds a hidden unit of each row, None to cut by rows; keep what features and rows cost.

        By these costs, `finished` measures speeds.
        """
        by_work = self.split == "work"
        self.per_nnz, self.per_row = (PER_NNZ, PER_LABEL * dataset.Y.n_cols) if by_work else (0.0, 1.0)
        return self.per_nnz * np.diff(dataset.X.indptr) + self.per_row if by_work else None

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Form the groups of the first phase."""
        self.since = 0.0  # the second in which the phase began
        self.workers, self.running, self.coming = list(workers), set[int](), list[int]()
        self.compute = ComputeGroups(self.batch)
        n_workers = max(len(workers), 1)  # where all are yet to come, the first is on its own for a while
        self.tuner = GroupTuner(n_workers, self.learning_rate) if self.tune else None
        self.begin_phase(self.tuner.phase() if self.tuner else Phase(self.given_setting(n_workers), trial=False))

    def given_setting(self, n_workers: int) -> Setting:
        """Return what is run without a tuner."""
        g = self.groups or most_groups(n_workers)
        m = explicit_momentum(g) if self.momentum is None else self.momentum
        return Setting(g, m, self.learning_rate)

    def begin_phase(self, phase: Phase) -> None:
        """Begin to count anew and form the groups of a phase."""
        self.phase = phase
        self.losses: deque[float] = deque(maxlen=SCORE_WINDOW)
        self.version, self.staleness, self.first_update = 0, 0, 0.0
        self.form_groups()

    def form_groups(self) -> None:
        """Deal all workers out to groups, which are about to read the model as it is."""
        self.compute.form(self.workers, self.phase.setting.groups)
        self.read = dict.fromkeys(self.compute.members, self.version)  # the version of the model that a group read
        self.reads_kept = self.closing = False
        self.coming.clear()

    @property
    def trial(self) -> int | None:
        """Return the number of the trial under way."""
        return len(self.tuner.results) if self.tuner and self.phase.trial else None

    def batch_size(self, w: int, now: float) -> int:
        """Return the worker's share of its group's batch, once; nothing while a trial comes to its end."""
        return 0 if self.closing else self.compute.wanted(w)

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return eta: a member's gradient is a mean, weighed by its rows at the update."""
        return self.phase.setting.learning_rate

    def submitted(self, w: int, rows: int, now: float) -> None:
        """Note the rows given out."""
        self.compute.given[w] = rows
        self.running.add(w)

    def finished(self, report: Report) -> None:
        """Note a member's part of the batch, and its speed."""
        w, work = report.worker, self.per_nnz * report.nnz + self.per_row * report.rows
        self.running.discard(w)
        self.compute.finished(w, report.rows, float(report.loss), work / max(report.seconds, 1e-9))

    def left(self, w: int) -> None:
        """Forget a worker."""
        self.workers.remove(w)
        self.running.discard(w)
        if w in self.coming:
            self.coming.remove(w)
        else:
            self.compute.remove(w)
            if not self.compute.members:  # those that are coming are as the model is: none has written it since
                self.form_groups()

    def joined(self, w: int) -> None:
        """Let a new worker wait until a group has written the model, which it then reads too."""
        self.workers.append(w)
        if self.compute.members:
            self.coming.append(w)
        else:
            self.form_groups()

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return the members of the groups whose batch is done; all workers at the end of a trial."""
        if self.closing:
            return () if busy else list(self.workers)
        groups = self.compute.members
        return [w for j in groups if self.compute.complete(j) for w in groups[j]]

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Update the model by each of the groups; then see whether the phase is over."""
        if not self.reads_kept:
            self.keep_reads(comm)
        groups = [j for j, group in self.compute.members.items() if set(group) <= set(members)]
        ready = [j for j in groups if any(self.compute.rows(j).values())]
        for j in ready:
            self.update(comm, j)
        if ready:
            self.admit(comm, ready[-1])
        if self.phase.trial:
            over = comm.now() - self.since >= self.slice_seconds or not math.isfinite(sum(self.losses))
            self.closing = self.closing or over or not ready  # a merge of nothing: the rows have run out
            if self.closing and not self.running:
                assert self.tuner is not None
                self.next_phase(comm, self.tuner)

    def keep_reads(self, comm: Comm) -> None:
        """Keep what the groups have read, before the first of them writes."""
        for j in self.compute.members:
            comm.save_center(f"read {j}")
        self.reads_kept = True

    def update(self, comm: Comm, j: int) -> None:
        """Take the step of group j, and let it read the model again."""
        rows, momentum = self.compute.rows(j), self.phase.setting.momentum
        total = sum(rows.values())

        def rule(params: ParameterSlice) -> None:
            read, v = params.state(f"read {j}"), params.state("velocity")
            v *= np.float32(momentum)
            for w, replica in params.replicas.items():
                v += np.float32(rows[w] / total) * (replica - read)
            params.center += v
            params.broadcast()
            read[:] = params.center

        comm.merge(rule, list(rows), merges_to_fade(momentum))
        if self.version == 0:
            self.first_update = comm.now()
        self.losses.append(self.compute.loss(j))
        self.staleness += self.version - self.read[j]
        self.version += 1
        self.read[j] = self.version
        self.compute.open_batch(j)

    def admit(self, comm: Comm, written: int) -> None:
        """Let workers that have come read the model: as a new group while one is missing, else in the one just done."""
        for w in self.coming:
            comm.merge(ParameterSlice.broadcast, [w])
            j = written
            if len(self.compute.members) < self.phase.setting.groups:
                j = self.compute.free_number()
                comm.save_center(f"read {j}")
                self.read[j] = self.version
            self.compute.add(w, j)
        self.coming.clear()

    def end_epoch(self, comm: Comm) -> None:
        """Let all groups read the model; begin the next phase if it is time to tune."""
        comm.merge(ParameterSlice.broadcast, self.workers)
        if self.tuner and comm.now() - self.since >= self.long_seconds:
            self.next_phase(comm, self.tuner)
        else:
            self.form_groups()

    def next_phase(self, comm: Comm, tuner: GroupTuner) -> None:
        """Tell the tuner what the phase came to, and begin the next."""
        now, n = comm.now(), self.version
        # The first update comes late, for all groups begin at once.
        seconds = (now - self.first_update) / (n - 1) if n > 1 else now - self.since
        tuner.results.append(Result(float(np.mean(self.losses)), seconds))
        self.since = now
        self.begin_phase(tuner.phase())

    def notes(self) -> dict[str, object]:
        """Return the setting by name, members, mean staleness, and the trials that led to the setting."""
        notes: dict[str, object] = {
            **self.phase.setting._asdict(),
            "members": list(self.compute.members.values()),
            "staleness": self.staleness / max(self.version, 1),
        }
        if self.tuner:
            notes["trials"] = [
                {**setting._asdict(), "loss": result.loss if math.isfinite(result.loss) else None}
                for setting, result in self.tuner.last_trials()
            ]
        return notes

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return the rows of each worker in a batch of its group."""
        return {"batch": self.compute.share}


def most_groups(n_workers: int) -> int:
    """Return the largest divisor g of `n_workers` with 1 - 1/g <= `BEST_MOMENTUM`."""
    return max(g for g in divisors(n_workers) if g * (1 - BEST_MOMENTUM) <= 1 + 1e-9)


def implicit_momentum(g: int) -> float:
    """Return what the asynchrony of g groups amounts to, if who finishes next is random: 1 - 1/g."""
    return 1 - 1 / g


def explicit_momentum(g: int) -> float:
    """Return the momentum that g groups lack of the best at one group."""
    return max(0.0, BEST_MOMENTUM - implicit_momentum(g))
