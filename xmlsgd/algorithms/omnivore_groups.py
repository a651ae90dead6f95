"""The compute groups of Omnivore, and how a group splits a batch among its workers by their speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .rounds import moving_average

# Weight of the newest measurement in a worker's speed. With 0.1 to 0.5, the scheduling efficiency of one group is 85.1
# to 86.1 % on S2, 87 on S3, 64 on S7 and, where a device slows down, 83.0 to 85.1 on S5.
NEWEST_SPEED = 0.2


@dataclass
class ComputeGroups:
    """Groups of workers, each of which trains a batch of `batch` rows at a time.

    members : workers of each group, by its number. The others are by worker and, but for speed, of the current batch of
    its group. share : rows that it is to train. given : rows that it was given. done : rows that it has trained, and
    the sum of their losses. speed : work per second, a moving average.
    """

    batch: int
    members: dict[int, list[int]] = field(default_factory=dict)
    share: dict[int, int] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    done: dict[int, tuple[int, float]] = field(default_factory=dict)
    speed: dict[int, float] = field(default_factory=dict)

    def form(self, workers: Sequence[int], g: int) -> None:
        """Divide the workers among g groups, or one group each if there are fewer workers."""
        self.members = {j: list(workers[j::g]) for j in range(min(g, len(workers)))}
        self.share, self.given, self.done = {}, {}, {}
        for j in self.members:
            self.open_batch(j)

    def open_batch(self, j: int) -> None:
        """Split the next batch of group j by speed; an unknown speed counts as the mean of the known ones."""
        group = self.members[j]
        known = [self.speed[w] for w in group if w in self.speed]
        usual = sum(known) / len(known) if known else 1.0
        self.share |= largest_remainder({w: self.speed.get(w, usual) for w in group}, self.batch)
        for w in group:
            self.given[w], self.done[w] = 0, (0, 0.0)

    @property
    def busy(self) -> bool:
        """Return whether a worker has not yet trained what it was given."""
        return any(given and not self.done[w][0] for w, given in self.given.items())

    def wanted(self, w: int) -> int:
        """Return the rows to give to a worker now: its share if it was given none yet; 0 if it has no group."""
        return 0 if self.given.get(w, 1) else self.share[w]

    def finished(self, w: int, rows: int, loss: float, speed: float) -> None:
        """Note that a worker has trained its part of the batch, and at which speed."""
        self.done[w] = rows, loss
        self.speed[w] = moving_average(self.speed.get(w), speed, NEWEST_SPEED)

    def rows(self, j: int) -> dict[int, int]:
        """Return the rows that each member of group j has trained of its batch."""
        return {w: self.done[w][0] for w in self.members[j]}

    def loss(self, j: int) -> float:
        """Return the mean loss of the rows that group j has trained of its batch."""
        return sum(self.done[w][1] for w in self.members[j]) / sum(self.rows(j).values())

    def complete(self, j: int) -> bool:
        """Return whether every member of group j has done its share."""
        rows = self.rows(j)
        return any(rows.values()) and all(rows[w] or not self.share[w] for w in rows)

    def add(self, w: int, j: int) -> None:
        """Add a worker to group j, which may be new; the group must be between two batches."""
        self.members.setdefault(j, []).append(w)
        self.open_batch(j)

    def remove(self, w: int) -> None:
        """Remove a worker, and its group if that is empty then; split the batch again if no worker left has a share."""
        j = next(j for j, group in self.members.items() if w in group)
        self.members[j].remove(w)
        del self.given[w], self.done[w], self.share[w]
        if not self.members[j]:
            del self.members[j]
        elif not any(self.share[other] for other in self.members[j]):
            self.open_batch(j)

    def free_number(self) -> int:
        """Return the smallest number that no group has."""
        return next(j for j in range(len(self.members) + 1) if j not in self.members)


def largest_remainder(parts: Mapping[int, float], total: int) -> dict[int, int]:
    """Return whole numbers in proportion to `parts` that sum to `total`, each less than 1 from the exact share.

    Shares are rounded down. The rest goes first to those that would get nothing, so that their speed is still measured,
    then to the largest remainders.
    """
    sum_of_parts = sum(parts.values())
    exact = {w: total * part / sum_of_parts for w, part in parts.items()}
    shares = {w: int(e) for w, e in exact.items()}
    order = sorted(parts, key=lambda w: (shares[w] > 0, shares[w] - exact[w], w))
    for w in order[: total - sum(shares.values())]:
        shares[w] += 1
    return shares
