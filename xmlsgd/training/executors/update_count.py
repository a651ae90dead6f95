"""How many updates an optimizer state has seen, and how many others made while a worker was at a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..messages import Report


class UpdateCount:
    """Counts for `n_states` optimizer states: one a worker, or one of a model that all share; `first` are before all.

    seen : updates by state.
    """

    def __init__(self, n_states: int, first: int) -> None:
        self.seen = [first] * n_states
        self._saved = list(self.seen)
        self._pushed = 0  # updates of the shared model
        self._read: dict[int, int] = {}  # of these, those before a worker's step began
        self._made: dict[int, int] = {}  # by a worker's last step, until they are pushed

    def state_of(self, w: int) -> int:
        """Return which state worker `w` has."""
        return w if len(self.seen) > 1 else 0

    def begins(self, w: int) -> None:
        """Note that a step reads the model now."""
        self._read[w] = self._pushed

    def ends(self, report: Report) -> Report:
        """Count the updates of a step; return its report with their staleness."""
        w = report.worker
        self.seen[self.state_of(w)] += report.updates
        self._made[w] = report.updates
        return replace(report, staleness=self._pushed - self._read[w])

    def pushes(self, w: int, weight: float) -> None:
        """Note that what a worker's last step changed is in the model; with weight 0 it makes nobody's model older."""
        made = self._made.pop(w)
        if weight:
            self._pushed += made

    def begin_anew(self, w: int, first: int) -> None:
        """Note that the state of worker `w` is another one, which has seen `first` updates."""
        self.seen[self.state_of(w)] = first

    def set_aside(self) -> None:
        """Keep the counts of the states."""
        self._saved = list(self.seen)

    def put_back(self) -> None:
        """Go back to what was kept."""
        self.seen = list(self._saved)
