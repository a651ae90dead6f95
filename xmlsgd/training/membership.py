"""Membership: which workers take part in a run, as workers leave, join, or stand in for others."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .merging import Comm, ParameterSlice
from .messages import Sharing

if TYPE_CHECKING:
    from ..algorithms.base import Algorithm
    from .messages import Report


class Membership:
    """Tells an algorithm of the workers that take part.

    Workers that the algorithm excludes take part only while none of the others is there.
    """

    def __init__(self, algorithm: Algorithm, workers: Collection[int], n_rows: int) -> None:
        """Start the algorithm with the workers that take part at first."""
        self.algorithm, self.there, self.working = algorithm, set(workers), set[int]()
        self._replicas = algorithm.sharing is Sharing.REPLICAS
        self.working.update(self._missing())
        algorithm.start(sorted(self.working), n_rows)

    def left(self, w: int) -> None:
        """Note that a worker is gone; excluded workers stand in for the last of the others."""
        self.there.remove(w)
        if w in self.working:
            self.working.remove(w)
            self.algorithm.left(w)
        if not self._replicas:  # else they get the model first (`merge_due`)
            self._take_on(self._missing())

    def joined(self, w: int) -> None:
        """Note that a worker has come, with a copy of the shared model."""
        self.there.add(w)
        self._take_on({w}.intersection(self._missing()))

    def finished(self, report: Report) -> None:
        """Note that a span is done."""
        self.algorithm.finished(report)
        if not self._replicas:
            self._release([report.worker])

    def merge_due(self, busy: Collection[int], now: float) -> Collection[int]:
        """Return the workers that shall get the model to stand in for others, or whose replicas are to be merged."""
        return self._missing() or self.algorithm.merge_due(busy, now)

    def merge(self, comm: Comm, members: Collection[int]) -> None:
        """Let the algorithm merge the workers that take part, and give the model to those that are to stand in."""
        newcomers = self._missing()
        if working := [w for w in members if w in self.working]:
            self.algorithm.merge(comm, working)
            self._release(working)
        if newcomers:
            comm.merge(ParameterSlice.broadcast, newcomers)
            self._take_on(newcomers)

    def _wanted(self) -> set[int]:
        """Return the workers that are to take part, of those that are there."""
        return self.there - self.algorithm.excluded or set(self.there)

    def _missing(self) -> list[int]:
        """Return the workers that are to take part and do not yet."""
        return sorted(self._wanted() - self.working)

    def _take_on(self, newcomers: Collection[int]) -> None:
        """Tell the algorithm of workers that have the model as it is."""
        for w in newcomers:
            self.working.add(w)
            self.algorithm.joined(w)

    def _release(self, idle: Collection[int]) -> None:
        """Let those of `idle` go who stood in for others that are back; all of their work is in the model."""
        for w in sorted(self.working.intersection(idle) - self._wanted()):
            self.working.remove(w)
            self.algorithm.left(w)
