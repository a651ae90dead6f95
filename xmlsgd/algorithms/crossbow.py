"""Crossbow: synchronous model averaging (SMA) of many learners with small batches, several per device.

Koliousis, Watcharapichat, Weidlich, Mai, Costa, Pietzuch 2019 (PVLDB 12(11), arXiv 1901.02244), Algorithm 1. In an
iteration every learner j takes a step g_j and a correction c_j towards the average model z, both computed at the model
that it had before:

    c_j <- alpha (w_j - z);  w_j <- w_j - g_j - c_j;  z <- z + sum of c_j + mu (z - z_previous)

As in the paper's task scheduler, a learner begins its next step as soon as it is corrected, while others still work,
and z moves while all are in their next step. Rows and sums follow the order of the learners, so the model does not
depend on timing. Only the auto-tuner (Algorithm 2) does: it adds a learner to each device as long as that raises the
throughput enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, takewhile
from statistics import median

import numpy as np

from ..data.validation import at_least, below_one
from ..errors import DataError, shorten
from ..training.merging import Comm, MergeRule, ParameterSlice
from ..training.messages import Report
from .outer import merges_to_fade
from .rounds import LocalWork, Rounds

GAIN = 0.10  # relative gain in throughput that one learner more must bring (released code)
WINDOWS = 3  # the median of so many throughputs decides; with one, as in the released code, noise ended the tuning
INTERVAL = 8  # rounds per measured throughput


@dataclass
class Crossbow(Rounds):
    """SMA of k learners with alpha = 1 / k. A single learner trains as plain SGD does, but its merges take time.

    Parameters
    ----------
    batch, learning_rate
        See `Algorithm`.
    sync_every : int
        tau, updates of a learner between averages, >= 1. The paper has 1, with which averaging the wide output layers
        of extreme classification takes a quarter of the time; with 16, a twentieth.
    center_momentum : float
        mu, momentum of the average, in [0, 1).
    learners : int
        Most learners per device: workers 0 to learners - 1 are those of the first device, and so on; each device must
        have as many. Their number is tuned, beginning with 1; with `learners` 1 every worker takes part from the start.

    Notes
    -----
    In a round, a learner that takes part (`learning`) makes its updates, waits for its turn (`merge_due`), is
    `corrected`, and makes its updates of the next round. When all are corrected, the average moves and the next round
    begins with no learner corrected. If the tuner wants other learners (`changing`), none begins the next round.

    The paper also restarts all learners from the average when the learning rate drops in a step; the schedules of this
    package have no steps.
    """

    sync_every: int = at_least(16, 1)
    center_momentum: float = below_one(0.9)
    learners: int = at_least(1, 1)

    @classmethod
    def published(cls, batch: int = 16, learning_rate: float = 6e-3) -> Crossbow:
        """Return the paper's setting, which averages at every iteration."""
        return cls(batch, learning_rate, sync_every=1)

    pauses_for_checkpoint = True  # a learner may be in the next round before all have finished this one

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the number of vectors: sum of corrections, motion of the average, c_j of each learner if tau is 1."""
        return 1 + int(self.center_momentum > 0) + (n_workers if self.sync_every == 1 else 0)

    def check_devices(self, devices: Sequence[str]) -> None:
        """Raise `DataError` unless each device has `learners` workers, next to each other, if their number is tuned."""
        super().check_devices(devices)
        m = self.learners
        if m > 1 and [*devices] != [device for device in dict.fromkeys(devices) for _ in range(m)]:
            raise DataError(
                f"learners: with learners={m} each device must have {m} workers, got {shorten(', '.join(devices))}; "
                f"list each {m} times, as in devices='cuda:0*{m}', or leave learners at 1, as for simulated devices, "
                "which have one worker"
            )

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin with one learner per device."""
        super().start(workers, n_rows)
        self.tuner = LearnerTuner(self.learners)
        self.learning = self.chosen()
        self.corrected: set[int] = set()  # learners that have finished this round and are in the next one
        self.changing = False  # whether the tuner wants other learners to take part

    @property
    def alpha(self) -> float:
        """Return the strength of the corrections."""
        return 1 / max(len(self.learning), 1)

    def chosen(self) -> set[int]:
        """Return the learners that the tuner wants to take part: the first few of each device."""
        devices = groupby(sorted(self.size), lambda w: w // self.learners)
        return {w for _, workers in devices for w in islice(workers, self.tuner.learners)}

    def open_rows(self, w: int) -> float:
        """Return the rows that a learner still has to train before its next correction; 0 if it does not take part."""
        if w not in self.learning or (self.changing and w in self.corrected):
            return 0
        return super().open_rows(w)

    def finished(self, report: Report) -> None:
        """Note a finished span; count its rows for the tuner, too."""
        super().finished(report)
        self.tuner.rows += report.rows

    def worker_left(self, w: int) -> None:
        """Forget a learner. Its corrections stay in the sum; another learner of its device may take its part."""
        super().worker_left(w)
        self.learning.discard(w)
        self.corrected.discard(w)

    def worker_joined(self, w: int) -> None:
        """Add a new learner, which takes part if the tuner wants that many on its device."""
        super().worker_joined(w)
        self.learning |= self.chosen() & {w}

    def deadline(self, now: float) -> float | None:
        """Return `now` if it is a learner's turn, which can come without an event, when the average has moved."""
        return now if self.merge_due(self.throughput.due, now) else None

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return the learners whose turn it is: in order, up to the first that has not finished the round."""

        def done(w: int) -> bool:
            return w not in busy and self.given[w] > 0 and not self.goes_on(w, now)

        return list(takewhile(done, sorted(self.learning - self.corrected)))

    def merge_replicas(self, comm: Comm, work: Mapping[int, LocalWork]) -> None:
        """Correct learners. At the end of an epoch some may be a round ahead; the average moves before their turn."""
        if len(self.learning) == 1:
            self._take_alone(comm)
            return
        ahead = {w for w in self.corrected if w in work and work[w].updates}
        self._correct(comm, self.learning.intersection(work) - self.corrected)
        if ahead:
            self._move_average(comm)
            self._correct(comm, ahead)

    def overlap(self, comm: Comm, busy: Collection[int]) -> None:
        """Move the average when all are corrected or no rows are left; then change the learners if the tuner wants."""
        if self.corrected and len(self.learning) == 1:  # all others have died in the meantime
            if not busy:
                self._take_alone(comm)
        elif self.corrected and (not busy or self.corrected >= self.learning):
            self._correct(comm, self.learning - self.corrected)
            self._move_average(comm)
        uncorrected = any(self.given.values())  # changing the learners now would lose their work
        if not uncorrected and self.learning != self.chosen():
            self.learning, self.changing = self.chosen(), False
            comm.merge(MergeRule(self._restart_slice), self.learning)

    def _correct(self, comm: Comm, learners: Collection[int]) -> None:
        """Correct idle learners."""
        if learners:
            # Rows of the input layer move until the average has moved, and then by its momentum.
            fade_merges = (1 + len(self.learning)) * (1 + merges_to_fade(self.center_momentum))
            comm.merge(MergeRule(self._correct_slice, fade_merges, ends_at_center=False), learners)
            self.corrected.update(learners)

    def _move_average(self, comm: Comm) -> None:
        """Move the average by all corrections and end the round."""
        comm.merge(MergeRule(self._move_average_slice), ())
        self._end_round(comm)

    def _take_alone(self, comm: Comm) -> None:
        """Make the only learner's model the average and end the round."""
        comm.merge(MergeRule(self._take_alone_slice), self.learning)
        self._end_round(comm)

    def _end_round(self, comm: Comm) -> None:
        """Begin a round in which no learner is corrected yet; ask the tuner whether to change the learners."""
        self.corrected.clear()
        self.tuner.finished_round(comm.now())
        self.changing = self.learning != self.chosen()

    def _correct_slice(self, params: ParameterSlice) -> None:
        """Correct learners; if tau is 1, by the c_j computed before their step, as in the paper."""
        total, z, alpha = params.state("sum"), params.center, np.float32(self.alpha)
        for w, replica in params.replicas.items():
            if self.sync_every > 1:
                c = alpha * (replica - z)
                replica -= c
            else:
                c = params.state("c", w)
                replica -= c
                c[:] = alpha * (replica - z)
            total += c

    def _move_average_slice(self, params: ParameterSlice) -> None:
        """Move the average by the sum of corrections and, if mu > 0, by its last motion."""
        total = motion = params.state("sum")
        if self.center_momentum:
            motion = params.state("motion")
            motion *= np.float32(self.center_momentum)
            motion += total
        params.center += motion
        total[:] = 0

    def _take_alone_slice(self, params: ParameterSlice) -> None:
        """Make the only learner's model the average, plus the corrections of learners that have left."""
        ((w, replica),) = params.replicas.items()
        if self.corrected and self.sync_every == 1:  # its own correction is in the sum, but not yet in its model
            replica -= params.state("c", w)
        params.center[:] = replica
        self._restart_slice(params)

    def _restart_slice(self, params: ParameterSlice) -> None:
        """Add outstanding corrections to the average, copy it to the learners, and clear the merge states."""
        params.center += params.state("sum")
        params.broadcast()
        states = [params.state("sum")]
        states += [params.state("motion")] if self.center_momentum else []
        states += [params.state("c", w) for w in params.replicas] if self.sync_every == 1 else []
        for state in states:
            state[:] = 0

    def notes(self) -> dict[str, object]:
        """Return the number of learners per device."""
        return {"learners": self.tuner.learners}

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return the batch sizes and, if the number of learners is tuned, who takes part."""
        learning = {w: w in self.learning for w in self.size}
        return super().worker_notes() | ({"learning": learning} if self.learners > 1 else {})


@dataclass
class LearnerTuner:
    """The auto-tuner of the number of learners per device: one more, up to `most`, while throughput rises by `GAIN`.

    rows : rows trained since second `since`. rounds : rounds so far. best : highest throughput so far. throughputs :
    measured with the current number of learners.
    """

    most: int
    learners: int = 1
    rows: int = 0
    rounds: int = 0
    since: float | None = None
    best: float = 0.0
    throughputs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ended = self.most == 1

    def finished_round(self, now: float) -> None:
        """Note that a round ends at second `now`; after enough rounds, decide whether to change the number."""
        if self.since is None:  # the first round includes the start
            self.since, self.rows = now, 0
            return
        self.rounds += 1
        if self.ended or self.rounds % INTERVAL:
            return
        self.throughputs.append(self.rows / max(now - self.since, 1e-12))
        self.since, self.rows = now, 0
        if len(self.throughputs) == WINDOWS:
            self._decide(median(self.throughputs))
            self.throughputs.clear()

    def _decide(self, throughput: float) -> None:
        """Add a learner if the last one paid off; otherwise remove it and stop tuning."""
        if throughput > self.best * (1 + GAIN):
            self.ended = self.learners == self.most
            self.best, self.learners = throughput, min(self.learners + 1, self.most)
        else:
            self.ended, self.learners = True, max(self.learners - 1, 1)
