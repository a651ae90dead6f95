"""What is done about updates that were computed on an old model, as an axis of its own.

Staleness counts the updates that others made between an update's reading and its writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..data.validation import Checked, at_least


@dataclass(frozen=True)
class Staleness(Checked):
    """Base of the rules: every update counts in full, nobody waits."""

    def weight(self, staleness: float) -> float:
        """Return the weight of an update of this staleness."""
        return 1.0

    def may_start(self, w: int, updates: Mapping[int, float]) -> bool:
        """Return whether worker `w` may start another update, given how many each worker has made."""
        return True


@dataclass(frozen=True)
class Dropped(Staleness):
    """Drop updates of a staleness of `limit` or more (Ringmaster ASGD, Maranjyan et al. 2025)."""

    limit: int = at_least(64, 1)

    def weight(self, staleness: float) -> float:
        """Return 0 for what is too stale."""
        return float(staleness < self.limit)


@dataclass(frozen=True)
class Bounded(Staleness):
    """Nobody begins an update more than `slack` ahead of the slowest (stale synchronous parallel, Ho et al. 2013)."""

    slack: int = at_least(3, 0)

    def may_start(self, w: int, updates: Mapping[int, float]) -> bool:
        """Return whether `w` is within the slack."""
        return updates[w] - min(updates.values()) <= self.slack


RULES: dict[str, type[Staleness]] = {
    "full": Staleness, "dropped": Dropped, "bounded": Bounded
}  # fmt: skip
