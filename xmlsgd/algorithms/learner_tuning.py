"""How many learners a device should have: one more as long as throughput rises by enough.

Crossbow's rule, with a median over several windows in place of one sample, which noise would end for good.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from ..data.validation import check_field_types
from ..errors import DataError


@dataclass
class LearnerTuner:
    """Learners a device, from 1 to `most`.

    threshold : relative gain in throughput that one learner more must bring. windows : throughputs whose median
    counts, >= 3. interval : meetings a window.
    """

    most: int
    threshold: float = 0.10
    windows: int = 3
    interval: int = 8
    learners: int = 1
    ended: bool = False
    throughputs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise `DataError` for fewer windows than a median needs."""
        check_field_types(self)
        if self.windows < 3:
            raise DataError(f"windows must be at least 3, got {self.windows}")
        self._best, self._meetings, self._rows = 0.0, 0, 0
        self._since: float | None = None

    def changed(self, now: float, rows: int) -> bool:
        """Note `rows` trained until second `now`; return whether the number of learners has changed."""
        if self.ended:
            return False
        if self._since is None:
            self._since = now  # what came before includes the start
            return False
        self._meetings, self._rows = self._meetings + 1, self._rows + rows
        if self._meetings % self.interval:
            return False
        self.throughputs.append(self._rows / max(now - self._since, 1e-12))
        self._since, self._rows = now, 0
        return len(self.throughputs) == self.windows and self._decide()

    def _decide(self) -> bool:
        """Add a learner if the last one paid, else take it away and end."""
        throughput, before = median(self.throughputs), self.learners
        self.throughputs.clear()
        if throughput > self._best * (1 + self.threshold):
            self._best = throughput
            self.learners = min(self.learners + 1, self.most)
            self.ended = self.learners == before
        else:
            self.learners, self.ended = max(self.learners - 1, 1), True
        return self.learners != before
