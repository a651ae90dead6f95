"""What a step costs a worker besides its arithmetic: to ask for work, to get it, to report."""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection
from typing import Any

from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.merging import MergeRule
from xmlsgd.training.messages import Event, Report, Span


class Timed(Processes):
    """Worker processes of which each hop is timed.

    A hop is the time from when a worker's report is heard to when it is given its next span, unless others are heard or
    replicas are merged meanwhile, for then it waits because the algorithm wants it to; and the time from there to the
    next report, less the seconds that its steps took. hops, steps : seconds, one of each a message.
    """

    def __init__(self, *makers: Any, **settings: Any) -> None:
        super().__init__(*makers, **settings)
        self.hops: list[float] = []
        self.steps: list[float] = []
        self._heard_at: dict[int, float] = {}
        self._given_at: dict[int, tuple[float, float]] = {}  # second, and seconds since the report before

    def _begin(self, span: Span) -> None:
        now = time.perf_counter()
        self._given_at[span.worker] = now, now - self._heard_at.pop(span.worker, now)
        super()._begin(span)

    def _next(self, until: float | None) -> Event | None:
        self._heard_at.clear()
        event = super()._next(until)
        now = time.perf_counter()
        if isinstance(event, Report):
            given, asked = self._given_at.pop(event.worker)
            self.hops.append(asked + now - given - event.seconds)
            self.steps.append(event.seconds)
            self._heard_at[event.worker] = now
        return event

    def merge(self, rule: MergeRule, members: Collection[int]) -> None:
        """Merge, after which nobody goes on at once."""
        super().merge(rule, members)
        self._heard_at.clear()

    def pause(self) -> None:
        """Note that what follows, as measuring a model between epochs, is no part of a hop."""
        self._heard_at.clear()

    def summary(self) -> dict[str, float]:
        """Return the median seconds of a hop and of the steps of a message, and the seconds of all hops over those."""
        return {
            "hop_seconds": statistics.median(self.hops),
            "message_seconds": statistics.median(self.steps),
            "hop_share": sum(self.hops) / sum(self.steps),
        }
