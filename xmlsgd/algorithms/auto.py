"""The algorithm that suits a fleet, chosen from what its workers share and how fast they were measured to be.

Why these: docs/decisions/workers.md. Workers that write one memory need no merges and lose nothing to averaging, so
they share the model. Otherwise free workers take the next batch of a round, after which replicas are merged by AdaSum,
which keeps what single workers learned of rare labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DataError, shorten
from ..training.merging import ParameterSlice
from ..training.messages import Report, Sharing
from .base import Algorithm, Comm
from .hogwild import Hogwild
from .local_sgd import LocalSGD
from .sequential import Sequential

if TYPE_CHECKING:
    import numpy as np

    from ..data.csr import Dataset

ALONE = "one worker: nothing to share or merge"
# Of an equal share: many equal workers bring little each, and are not to be excluded for it. Chosen, not measured: with
# the default `worth` it matters beyond 25 workers alone.
USEFUL = 0.5


@dataclass
class Auto(Algorithm):
    """One worker trains alone; workers over one memory share the model; others have replicas that are merged.

    speeds : rows a second of each worker, () for equal ones. one_memory : whether all workers compute in one, in which
    they can write the model in place. worth : share of the rows below which a worker is excluded: its part of the
    merges and its stale updates cost more than it brings; in [0, 1). One that brings half of an equal share is
    never excluded. While none of the others is there the excluded stand in for them.
    """

    speeds: tuple[float, ...] = ()
    one_memory: bool = True
    worth: float = 0.02

    def __post_init__(self) -> None:
        """Choose; raise `DataError` for speeds that are not above 0."""
        super().__post_init__()
        if any(not speed > 0 for speed in self.speeds):
            raise DataError(f"speeds must be above 0, got {shorten(self.speeds)}")
        if not 0 <= self.worth < 1:
            raise DataError(f"worth must be in [0, 1), got {self.worth}")
        total = sum(self.speeds)
        worth = min(self.worth, USEFUL / max(len(self.speeds), 1))
        self.excluded = {w for w, speed in enumerate(self.speeds) if speed < worth * total}
        working = len(self.speeds) - len(self.excluded)
        kind: type[Algorithm]
        if working == 1:
            kind, self.reason = Sequential, ALONE
        elif self.one_memory:
            kind, self.reason = Hogwild, "workers write one memory: no merges, no averaging"
        else:
            kind, self.reason = LocalSGD, "workers have memories of their own: replicas, merged by AdaSum"
        self.choose(kind)
        if self.excluded:
            shares = ", ".join(f"{w} ({self.speeds[w] / total:.1%})" for w in sorted(self.excluded))
            self.reason += f"; excluded, for they would bring below {100 * worth:.2g}% of the rows: {shares}"

    def choose(self, kind: type[Algorithm]) -> None:
        """Make an algorithm of this kind the one that is asked, in the same situation."""
        self.chosen = kind(self.batch, self.learning_rate)
        self.chosen.situation = self.situation

    @property
    def sharing(self) -> Sharing:
        """Return that of the chosen algorithm."""
        return self.chosen.sharing

    @property
    def trial(self) -> int | None:
        """Return that of the chosen algorithm."""
        return self.chosen.trial

    @property
    def tries(self) -> bool:
        """Return that of the chosen algorithm."""
        return self.chosen.tries

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Start with the workers that are not excluded, or with the excluded where these are alone."""
        self.there, self.working = set(workers), set[int]()
        self.working.update(self.missing())
        if not self.speeds and len(workers) == 1 and self.sharing is Sharing.IN_PLACE:
            self.choose(Sequential)
            self.reason = ALONE
        self.chosen.start(sorted(self.working), n_rows)

    def wanted(self) -> set[int]:
        """Return who is to work of those that are there."""
        return self.there - self.excluded or set(self.there)

    def missing(self) -> list[int]:
        """Return who is to work and does not yet."""
        return sorted(self.wanted() - self.working)

    def batch_size(self, w: int) -> int:
        """Return 0 for a excluded worker."""
        return self.chosen.batch_size(w) if w in self.working else 0

    def left(self, w: int) -> None:
        """Tell the chosen algorithm, if it knows the worker; let the excluded stand in for the last of the others."""
        self.there.remove(w)
        if w in self.working:
            self.working.remove(w)
            self.chosen.left(w)
        if self.sharing is not Sharing.REPLICAS:  # else they get the model first (`merge_due`)
            self.take_on(self.missing())

    def joined(self, w: int) -> None:
        """Tell the chosen algorithm, unless the worker is excluded."""
        self.there.add(w)
        self.take_on({w}.intersection(self.missing()))

    def take_on(self, newcomers: Collection[int]) -> None:
        """Tell the chosen algorithm of workers that have the model as it is."""
        for w in newcomers:
            self.working.add(w)
            self.chosen.joined(w)

    def exclude(self, idle: Collection[int]) -> None:
        """Exclude those of `idle` who stood in for others that are back; all of their work is in the model."""
        for w in sorted(self.working.intersection(idle) - self.wanted()):
            self.working.remove(w)
            self.chosen.left(w)

    def finished(self, report: Report) -> None:
        """Tell the chosen algorithm."""
        self.chosen.finished(report)
        if self.sharing is not Sharing.REPLICAS:
            self.exclude([report.worker])

    def merge_due(self, busy: Collection[int]) -> Collection[int]:
        """Return those who shall get the model to stand in for others, or whom the chosen algorithm will merge."""
        return self.missing() or self.chosen.merge_due(busy)

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Let the chosen algorithm merge the workers that it knows, and give the model to those that stand in."""
        newcomers = self.missing()
        if known := [w for w in members if w in self.working]:
            self.chosen.merge(comm, known)
            self.exclude(known)
        if newcomers:
            comm.merge(ParameterSlice.broadcast, newcomers)
            self.take_on(newcomers)

    def notes(self) -> dict[str, object]:
        """Return the choice, why, and what it notes."""
        name = type(self.chosen).__name__
        return {"algorithm": name, "reason": self.reason, **self.chosen.notes()}

    def worker_notes(self) -> dict[str, Mapping[int, float]]:
        """Return what the choice notes of each worker."""
        return self.chosen.worker_notes()

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return those of the chosen algorithm."""
        return self.chosen.merge_state_vectors(n_workers)

    def weigh_rows(self, dataset: Dataset) -> np.ndarray | None:
        """Let the chosen algorithm weigh them."""
        return self.chosen.weigh_rows(dataset)

    def updates(self, w: int) -> int:
        """Return those of the chosen algorithm."""
        return self.chosen.updates(w)

    def learning_rate_of(self, w: int, rows: int) -> float:
        """Return that of the chosen algorithm."""
        return self.chosen.learning_rate_of(w, rows)

    def submitted(self, w: int, rows: int) -> None:
        """Tell the chosen algorithm."""
        self.chosen.submitted(w, rows)

    def weight(self, report: Report) -> float:
        """Return what the chosen algorithm gives it."""
        return self.chosen.weight(report)

    def deadline(self) -> float | None:
        """Return that of the chosen algorithm."""
        return self.chosen.deadline()
