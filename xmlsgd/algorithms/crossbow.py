"""Crossbow: synchronous model averaging (SMA) of many learners with small batches, several a device.

Koliousis, Watcharapichat, Weidlich, Mai, Costa, Pietzuch 2019 (PVLDB 12(11), arXiv 1901.02244), Algorithm 1. In an
iteration every learner j takes a step and a correction towards the average model z, both from where it stood before:

    c_j <- alpha (w_j - z);  w_j <- w_j - g_j - c_j;  z <- z + sum of c_j + mu (z - z_previous)

As in the paper's task scheduler, a learner goes on to its next step as soon as it is corrected, while others are still
at work, and z moves while all are in their next step. Rows and sums keep the order of the learners, so that the model
depends on no timing, but for the auto-tuner (Algorithm 2), which adds a learner to each device as long as throughput
rises by enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, takewhile
from statistics import median

import numpy as np

from ..data.validation import at_least, below_one
from ..training.merging import Comm, ParameterSlice
from ..training.messages import Report
from .base import Algorithm
from .outer import merges_to_fade
from .rounds import UpdateRounds, Work

GAIN = 0.10  # relative gain in throughput that one learner more must bring (released code)
WINDOWS = 3  # throughputs whose median counts; the released code has one, and a noisy one ended the tuning for good
INTERVAL = 8  # rounds of a window


@dataclass
class Crossbow(UpdateRounds, Algorithm):
    """SMA of k learners with alpha = 1 / k. One learner alone has the model of plain SGD, but its merges take time.

    sync_every : tau, updates between averages, >= 1. 1 in the paper; with the wide output layers of here that takes a
    quarter of the time, with 16 a twentieth. center_momentum : mu, of the average, in [0, 1). learners : the
    most learners of a device; so many workers, one after the other, share one. Their number is tuned, from one up; with
    1 every worker takes part from the start.

    In a round, a learner that takes part (`learning`) is first at its updates, then done and waits for its turn
    (`merge_due`), then `corrected` and at its updates of the next round. When all are corrected the average moves, and
    nobody is corrected any more. Where the tuner wants other learners (`changing`), nobody begins the next round.

    The paper also restarts all learners from the average where the learning rate falls in a step; no schedule here has
    such steps.
    """

    center_momentum: float = below_one(0.9)
    learners: int = at_least(1, 1)

    @classmethod
    def published(cls, batch: int = 16, learning_rate: float = 6e-3) -> Crossbow:
        """Return the paper's form, which averages at every iteration."""
        return cls(batch, learning_rate, sync_every=1)

    @property
    def overlaps(self) -> bool:
        """Return that a learner may be in the next round before all are done with this one."""
        return True

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return motion and corrections of the average and, if these are from before the step, c_j by learner."""
        return 1 + int(self.center_momentum > 0) + (n_workers if self.sync_every == 1 else 0)

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Begin with one learner a device."""
        super().start(workers, n_rows)
        self.tuner = LearnerTuner(self.learners)
        self.learning = self.chosen()
        self.corrected: set[int] = set()  # learners that are done with the round, and in the next one
        self.changing = False  # whether other learners are to begin

    @property
    def alpha(self) -> float:
        """Return the strength of the pull for the learners that take part."""
        return 1 / max(len(self.learning), 1)

    def chosen(self) -> set[int]:
        """Return the learners that shall take part: the first of each device, as many as the tuner says."""
        devices = groupby(sorted(self.size), lambda w: w // self.learners)
        return {w for _, workers in devices for w in islice(workers, self.tuner.learners)}

    def open_rows(self, w: int) -> float:
        """Return the rows of the updates that a learner that takes part has left before its next correction."""
        if w not in self.learning or (self.changing and w in self.corrected):
            return 0
        return super().open_rows(w)

    def finished(self, report: Report) -> None:
        """Count the rows for the tuner too."""
        super().finished(report)
        self.tuner.rows += report.rows

    def left(self, w: int) -> None:
        """Forget a learner; what it was corrected by stays in the sum, and another of its device may take over."""
        super().left(w)
        self.learning.discard(w)
        self.corrected.discard(w)

    def joined(self, w: int) -> None:
        """Take a new learner in, if its device has room for it."""
        super().joined(w)
        self.learning |= self.chosen() & {w}

    def deadline(self, now: float) -> float | None:
        """Return now if it has become a learner's turn because the average has moved."""
        return now if self.merge_due(self.throughput.due, now) else None

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return the learners whose turn it is: done with a round whose last average is there, after those before."""

        def done(w: int) -> bool:
            return w not in busy and self.given[w] > 0 and not self.goes_on(w, now)

        return list(takewhile(done, sorted(self.learning - self.corrected)))

    def merge_replicas(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Correct learners; at the end of an epoch some may be a round ahead, whose average comes between."""
        if len(self.learning) == 1:
            self._take_alone(comm)
            return
        ahead = {w for w in self.corrected if w in work and work[w].updates}
        self._correct(comm, self.learning.intersection(work) - self.corrected)
        if ahead:
            self._move_average(comm)
            self._correct(comm, ahead)

    def overlap(self, comm: Comm, busy: Collection[int]) -> None:
        """Move the average when all are corrected, or no rows are left; then let other learners begin if need be."""
        if self.corrected and len(self.learning) == 1:  # all others have died since
            if not busy:
                self._take_alone(comm)
        elif self.corrected and (not busy or self.corrected >= self.learning):
            self._correct(comm, self.learning - self.corrected)
            self._move_average(comm)
        uncorrected = any(self.given.values())  # what they have learned would be lost
        if not uncorrected and self.learning != self.chosen():
            self.learning, self.changing = self.chosen(), False
            comm.merge(self.restart, self.learning)

    def _correct(self, comm: Comm, learners: Collection[int]) -> None:
        """Correct idle learners."""
        if learners:
            # Rows of the input layer are moving until the average has moved, and then by its momentum.
            fade_merges = (1 + len(self.learning)) * (1 + merges_to_fade(self.center_momentum))
            comm.merge(self.correction, learners, fade_merges, ends_at_center=False)
            self.corrected.update(learners)

    def _move_average(self, comm: Comm) -> None:
        """Move the average by all corrections; the round ends."""
        comm.merge(self.move, ())
        self._end_round(comm)

    def _take_alone(self, comm: Comm) -> None:
        """Take the one learner that is left as the average; the round ends."""
        comm.merge(self.alone, self.learning)
        self._end_round(comm)

    def _end_round(self, comm: Comm) -> None:
        """Begin a round in which nobody is corrected yet, and see whether other learners shall begin."""
        self.corrected.clear()
        self.tuner.finished_round(comm.now())
        self.changing = self.learning != self.chosen()

    def correction(self, params: ParameterSlice) -> None:
        """Correct learners, if rounds are of one step by the corrections from before it, which z has by now."""
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

    def move(self, params: ParameterSlice) -> None:
        """Move the average by the corrections of all learners and, if it has momentum, by its last motion."""
        total = motion = params.state("sum")
        if self.center_momentum:
            motion = params.state("motion")
            motion *= np.float32(self.center_momentum)
            motion += total
        params.center += motion
        total[:] = 0

    def alone(self, params: ParameterSlice) -> None:
        """Take the one learner as the average, with the corrections of learners that have left."""
        ((w, replica),) = params.replicas.items()
        if self.corrected and self.sync_every == 1:  # its own one is in the sum, but has yet to move it
            replica -= params.state("c", w)
        params.center[:] = replica
        self.restart(params)

    def restart(self, params: ParameterSlice) -> None:
        """Move the average by corrections that it still lacks, put learners where it is, and end its motion."""
        params.center += params.state("sum")
        params.broadcast()
        states = [params.state("sum")]
        states += [params.state("motion")] if self.center_momentum else []
        states += [params.state("c", w) for w in params.replicas] if self.sync_every == 1 else []
        for state in states:
            state[:] = 0

    def notes(self) -> dict[str, object]:
        """Return the learners a device."""
        return {"learners": self.tuner.learners}


@dataclass
class LearnerTuner:
    """The auto-tuner: learners a device, from 1 to `most`, one more as long as throughput rises by `GAIN`.

    rows : learned in this window so far.
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
        """Note that a round ends now; at the end of a window, see whether the number changes."""
        if self.since is None:  # what came before includes the start
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
        """Add a learner if the last one paid, else take it away and end."""
        if throughput > self.best * (1 + GAIN):
            self.ended = self.learners == self.most
            self.best, self.learners = throughput, min(self.learners + 1, self.most)
        else:
            self.ended, self.learners = True, max(self.learners - 1, 1)
