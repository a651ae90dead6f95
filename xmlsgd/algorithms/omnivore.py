"""Omnivore: workers in compute groups, synchronous inside a group, asynchronous between groups.

Hadjis, Zhang, Mitliagkas, Iter, Re 2016 (arXiv 1606.04487). A group reads the model w, splits a batch among its members
in proportion to their speed, and updates v <- m v - eta G, w <- w + v, whatever others did meanwhile. Asynchrony acts
like momentum (`asynchrony.py`), so groups, m and eta are tuned together (`group_tuning.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..data.csr import Dataset
from ..data.validation import check_choice
from ..errors import DataError, shorten
from ..training.merging import ParameterSlice
from ..training.messages import Report
from .asynchrony import divisors, explicit_momentum
from .base import Algorithm, Comm
from .compute_groups import ComputeGroups
from .group_tuning import GroupTuner, Phase, Result, Setting
from .outer import check_momentum, fading

# Multiply-adds a hidden unit: a stored feature takes part forward and in a gradient; a label in two gradients.
PER_NNZ, PER_LABEL = 2.0, 3.0


@dataclass
class Omnivore(Algorithm):
    """batch : B, rows of an update, those of a whole group. learning_rate : eta; with `tune` the largest that is tried.

    groups : g, of no more use than there are workers; None for as many as divide the workers evenly and whose implicit
    momentum 1 - 1/g is within `best_momentum`. momentum : m, in [0, 1); None for best_momentum - (1 - 1/g), at least 0.
    best_momentum : mu0, the best for one group, in [0, 1). 0.9 is that of plain SGD, and did better than 0 with Adam
    (docs/decisions/workers.md). split : what members get in proportion to speed: "work", which counts features, or
    "rows".

    tune : whether groups, momentum and rate are found by trials, at first and, after every `long_seconds`, > 0, from
    the next epoch on. A trial takes `slice_seconds`, > 0, or what is left of the epoch; its rows are trained again.
    score_window : losses of the last updates that a trial is judged by, >= 1. saturation, tie : see `GroupTuner`.
    """

    groups: int | None = None
    momentum: float | None = None
    best_momentum: float = 0.9
    split: str = "work"
    tune: bool = False
    slice_seconds: float = 60.0
    long_seconds: float = 10_000.0
    score_window: int = 10
    saturation: float = 0.10
    tie: float = 0.01

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges."""
        super().__post_init__()
        check_choice("split", self.split, ("work", "rows"))
        check_momentum(self.best_momentum, "best_momentum")
        if self.momentum is not None:
            check_momentum(self.momentum)
        if self.groups is not None and self.groups < 1:
            raise DataError(f"groups must be at least 1, got {self.groups}")
        if self.tune and not (self.groups is None and self.momentum is None):
            raise DataError(f"tune finds groups and momentum, got groups {self.groups} and momentum {self.momentum}")
        if not (self.slice_seconds > 0 and self.long_seconds > 0 and self.score_window >= 1):
            got = shorten((self.slice_seconds, self.long_seconds, self.score_window))
            raise DataError(f"slice_seconds and long_seconds must be above 0 and score_window at least 1, got {got}")
        self.tuner_of(1)

    def tuner_of(self, n_workers: int) -> GroupTuner:
        """Return the tuner for so many workers."""
        return GroupTuner(n_workers, self.learning_rate, self.best_momentum, self.saturation, self.tie)

    @property
    def tries(self) -> bool:
        """Return whether a tuner tries settings."""
        return self.tune

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the velocity and what each group has read."""
        return 1 + (n_workers if self.tune else min(self.given_setting(n_workers).groups, n_workers))

    def weigh_rows(self, dataset: Dataset) -> np.ndarray | None:
        """Set what features and rows cost; return the multiply-adds a hidden unit of each row, None to cut by rows."""
        by_work = self.split == "work"
        self.nnz_work, self.row_work = (PER_NNZ, PER_LABEL * dataset.Y.n_cols) if by_work else (0.0, 1.0)
        return self.nnz_work * np.diff(dataset.X.indptr) + self.row_work if by_work else None

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Form the groups of the first phase."""
        self.n_rows, self.kept_rows, self.since = n_rows, self.situation.done_rows, 0.0
        self.workers, self.running, self.coming = list(workers), set[int](), list[int]()
        self.compute = ComputeGroups(self.batch)
        n_workers = max(len(workers), 1)  # where all are yet to come, the first is on its own for a while
        self.tuner = self.tuner_of(n_workers) if self.tune else None
        self.begin_phase(self.tuner.phase() if self.tuner else Phase(self.given_setting(n_workers), trial=False))

    def given_setting(self, n_workers: int) -> Setting:
        """Return what is run without a tuner."""
        g = self.groups or most_groups(n_workers, self.best_momentum)
        m = explicit_momentum(g, self.best_momentum) if self.momentum is None else self.momentum
        return Setting(g, m, self.learning_rate)

    def begin_phase(self, phase: Phase) -> None:
        """Begin to count anew and form the groups of a phase."""
        self.phase = phase
        self.losses: deque[float] = deque(maxlen=self.score_window)
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

    def batch_size(self, w: int) -> int:
        """Return the worker's share of its group's batch, once; nothing while a trial comes to its end."""
        return 0 if self.closing else self.compute.wanted(w)

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return eta: a member's gradient is a mean, weighed by its rows at the update."""
        return self.phase.setting.learning_rate

    def submitted(self, w: int, rows: int) -> None:
        """Note the rows given out."""
        self.compute.given[w] = rows
        self.running.add(w)

    def finished(self, report: Report) -> None:
        """Note a member's part of the batch, and its speed."""
        w, work = report.worker, self.nnz_work * report.nnz + self.row_work * report.rows
        self.running.discard(w)
        self.compute.finished(w, report.rows, report.loss, work / max(report.seconds, 1e-9))

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

    def merge_due(self, busy: Collection[int]) -> Collection[int]:
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
                self.end_trial(comm)
        elif self.kept_rows == self.n_rows:
            self.end_epoch(comm)

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

        comm.merge(rule, list(rows), fading(momentum))
        if self.version == 0:
            self.first_update = comm.now()
        self.losses.append(self.compute.loss(j))
        self.kept_rows += 0 if self.phase.trial else total
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

    def end_trial(self, comm: Comm) -> None:
        """Go back to what was set aside for the next phase."""
        assert self.tuner is not None
        comm.put_back()
        self.next_phase(comm, self.tuner)

    def end_epoch(self, comm: Comm) -> None:
        """Let all groups read the model; if it is time to tune, set it aside before."""
        self.kept_rows = 0
        comm.merge(ParameterSlice.broadcast, self.workers)
        if self.tuner and comm.now() - self.since >= self.long_seconds:
            comm.set_aside()
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


def most_groups(n_workers: int, best_momentum: float) -> int:
    """Return the largest divisor g of `n_workers` with 1 - 1/g <= best_momentum."""
    return max(g for g in divisors(n_workers) if g * (1 - best_momentum) <= 1 + 1e-9)
