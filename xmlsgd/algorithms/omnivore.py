"""Omnivore: workers in compute groups, synchronous inside a group, asynchronous between groups.

Hadjis, Zhang, Mitliagkas, Iter, Re 2016 (arXiv 1606.04487). A group reads the model w, splits a batch among its members
in proportion to their speed, and updates v <- m v - eta G, w <- w + v, regardless of what other groups did meanwhile.

Asynchrony acts like momentum: with g groups a gradient is on average g - 1 updates old, which moves the expected model
like momentum 1 - 1/g. As long as that is below the best momentum, asynchrony costs next to nothing. Therefore g, m and
eta are tuned together (`omnivore_tuner.py`). `omnivore_groups.py` splits the batches.
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
from ..training.merging import BROADCAST, Comm, MergeRule, ParameterSlice
from ..training.messages import Report
from .base import Algorithm
from .omnivore_groups import ComputeGroups
from .omnivore_tuner import BEST_MOMENTUM, GroupTuner, Phase, Result, Setting, divisors
from .outer import merges_to_fade

# Multiply-adds per hidden unit: of a stored feature, one forward and one in a gradient; of a label, two in gradients.
PER_NNZ, PER_LABEL = 2.0, 3.0
SCORE_WINDOW = 10  # a trial is judged by the losses of so many last updates (released code)


@dataclass
class Omnivore(Algorithm):
    """The workers of a group split a batch by speed and update the model together; groups do not wait for each other.

    Parameters
    ----------
    batch : int
        B, rows of an update: the rows of a whole group.
    learning_rate : float
        eta; with `tune`, the largest that is tried.
    groups : int or None
        g, at most the number of workers; None for the largest g that divides the workers evenly and whose implicit
        momentum 1 - 1/g is at most 0.9, the best momentum of one group.
    momentum : float or None
        m, in [0, 1); None for the rest of the best momentum, 0.9 - (1 - 1/g), at least 0.
    split : {"work", "rows"}
        What the members of a group share in proportion to speed: rows, or work, which depends on their features.
    tune : bool
        Whether to find groups, momentum and learning rate by trials, whose rows are trained again: at the start, and at
        the end of an epoch when `long_seconds` have passed.
    slice_seconds : float
        Duration of a trial, > 0; a trial also ends with the epoch.
    """

    groups: int | None = at_least(None, 1)
    momentum: float | None = below_one(None)
    split: str = "work"
    tune: bool = False
    slice_seconds: float = ranged(60.0, "above 0", lambda value: value > 0)

    long_seconds = 10_000.0  # not a field: least seconds of training between trials (released code)

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges."""
        super().__post_init__()
        self.has_trials = self.tune
        check_choice("split", self.split, ("work", "rows"))
        if self.tune and not (self.groups is None and self.momentum is None):
            got = f"got groups {self.groups} and momentum {self.momentum}"
            raise DataError(f"groups and momentum must be None with tune, which finds them, {got}")

    @classmethod
    def published(cls, batch: int = 256, learning_rate: float = 6e-3) -> Omnivore:
        """Return the algorithm with the paper's optimizer of groups, momentum and learning rate."""
        return cls(batch, learning_rate, tune=True)

    @property
    def pauses_for_checkpoint(self) -> bool:
        """Return whether there are groups that do not wait for each other."""
        return len(self.compute.members) > 1

    def check_workers(self, n_workers: int) -> None:
        """Raise `DataError` for more groups than workers, whose momentum would be too low for those there are."""
        if self.groups is not None and self.groups > n_workers:
            raise DataError(f"groups must be at most the number of workers, got {self.groups} for {n_workers}")

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the number of vectors: the velocity, and the model that each group has read."""
        return 1 + (n_workers if self.tune else self.fixed_setting(n_workers).groups)

    def measure_costs(self, dataset: Dataset) -> np.ndarray | None:
        """Set the costs of a feature and a row, by which `finished` measures speeds; return those of rows, or None.

        Costs are multiply-adds per hidden unit; None if batches are cut by rows.
        """
        by_work = self.split == "work"
        self.per_nnz, self.per_row = (PER_NNZ, PER_LABEL * dataset.Y.n_cols) if by_work else (0.0, 1.0)
        return self.per_nnz * np.diff(dataset.X.indptr) + self.per_row if by_work else None

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Form the groups of the first phase."""
        self.since = 0.0  # second at which the phase began
        self.workers, self.newcomers = list(workers), list[int]()
        self.compute = ComputeGroups(self.batch)
        n_workers = max(len(workers), 1)  # if all workers are still to join, the first will be alone for a while
        self.tuner = GroupTuner(n_workers, self.learning_rate) if self.tune else None
        self.begin_phase(self.tuner.phase() if self.tuner else Phase(self.fixed_setting(n_workers), trial=False))

    def fixed_setting(self, n_workers: int) -> Setting:
        """Return the setting that is used without a tuner."""
        g = self.groups or most_groups(n_workers)
        m = explicit_momentum(g) if self.momentum is None else self.momentum
        return Setting(g, m, self.learning_rate)

    def begin_phase(self, phase: Phase) -> None:
        """Reset the counters and form the groups of a phase."""
        self.phase = phase
        self.losses: deque[float] = deque(maxlen=SCORE_WINDOW)
        self.version, self.staleness, self.first_update = 0, 0, 0.0
        self.form_groups()

    def form_groups(self) -> None:
        """Divide all workers among groups, which read the current model."""
        self.compute.form(self.workers, self.phase.setting.groups)
        self.read = dict.fromkeys(self.compute.members, self.version)  # version of the model that each group has read
        self.reads_kept = self.closing = False
        self.newcomers.clear()

    @property
    def trial(self) -> int | None:
        """Return the number of the trial under way."""
        return len(self.tuner.results) if self.tuner and self.phase.trial else None

    def batch_size(self, w: int, now: float) -> int:
        """Return the worker's share of its group's batch, once; 0 while a trial is ending."""
        return 0 if self.closing else self.compute.wanted(w)

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return eta for any number of rows: a member's gradient is a mean, which the update weighs by its rows."""
        return self.phase.setting.learning_rate

    def submitted(self, w: int, rows: int, now: float) -> None:
        """Note the rows given out."""
        self.compute.given[w] = rows

    def finished(self, report: Report) -> None:
        """Note that a member has trained its part of the batch, and its speed."""
        w, cost = report.worker, self.per_nnz * report.nnz + self.per_row * report.rows
        self.compute.finished(w, report.rows, float(report.loss), cost / max(report.seconds, 1e-9))

    def worker_left(self, w: int) -> None:
        """Forget a worker."""
        self.workers.remove(w)
        if w in self.newcomers:
            self.newcomers.remove(w)
        else:
            self.compute.remove(w)
            if not self.compute.members:  # nobody has written the model since the others joined: they are up to date
                self.form_groups()

    def worker_joined(self, w: int) -> None:
        """Let a new worker wait until a group has written the model, which it then reads."""
        self.workers.append(w)
        if self.compute.members:
            self.newcomers.append(w)
        else:
            self.form_groups()

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return the members of the groups whose batch is done; all workers at the end of a trial."""
        if self.closing:
            return () if busy else list(self.workers)
        groups = self.compute.members
        return [w for j in groups if self.compute.complete(j) for w in groups[j]]

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Update the model by the groups among `members`; then begin the next phase if a trial is over."""
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
            self.closing = self.closing or over or not ready  # no group is ready: the rows have run out
            if self.closing and not self.compute.busy:
                assert self.tuner is not None
                self.next_phase(comm, self.tuner)

    def keep_reads(self, comm: Comm) -> None:
        """Save the model that the groups have read, before the first of them writes."""
        for j in self.compute.members:
            comm.save_center(f"read {j}")
        self.reads_kept = True

    def update(self, comm: Comm, j: int) -> None:
        """Update the model by the step of group j, which then reads the model again."""
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

        comm.merge(MergeRule(rule, merges_to_fade(momentum)), list(rows))
        if self.version == 0:
            self.first_update = comm.now()
        self.losses.append(self.compute.loss(j))
        self.staleness += self.version - self.read[j]
        self.version += 1
        self.read[j] = self.version
        self.compute.open_batch(j)

    def admit(self, comm: Comm, written: int) -> None:
        """Let new workers read the model and add them to a group: a new one if one is missing, else group `written`."""
        for w in self.newcomers:
            comm.merge(BROADCAST, [w])
            j = written
            if len(self.compute.members) < self.phase.setting.groups:
                j = self.compute.free_number()
                comm.save_center(f"read {j}")
                self.read[j] = self.version
            self.compute.add(w, j)
        self.newcomers.clear()

    def end_epoch(self, comm: Comm) -> None:
        """Let all groups read the model; begin the next phase if it is time to tune."""
        comm.merge(BROADCAST, self.workers)
        if self.tuner and comm.now() - self.since >= self.long_seconds:
            self.next_phase(comm, self.tuner)
        else:
            self.form_groups()

    def next_phase(self, comm: Comm, tuner: GroupTuner) -> None:
        """Tell the tuner the result of the phase, and begin the next one."""
        now, n = comm.now(), self.version
        # The first update is not counted: it comes late, because all groups begin at once.
        seconds = (now - self.first_update) / (n - 1) if n > 1 else now - self.since
        tuner.results.append(Result(float(np.mean(self.losses)), seconds))
        self.since = now
        self.begin_phase(tuner.phase())

    def notes(self) -> dict[str, object]:
        """Return the setting, the members of groups, the mean staleness, and the trials that led to the setting."""
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
        """Return each worker's rows of a batch of its group."""
        return {"batch": self.compute.share}


def most_groups(n_workers: int) -> int:
    """Return the largest divisor g of `n_workers` with 1 - 1/g <= `BEST_MOMENTUM`."""
    return max(g for g in divisors(n_workers) if g * (1 - BEST_MOMENTUM) <= 1 + 1e-9)


def implicit_momentum(g: int) -> float:
    """Return the momentum that the asynchrony of g groups acts like, if they finish in random order: 1 - 1/g."""
    return 1 - 1 / g


def explicit_momentum(g: int) -> float:
    """Return the momentum to add to the implicit momentum of g groups for the best total, at least 0."""
    return max(0.0, BEST_MOMENTUM - implicit_momentum(g))
