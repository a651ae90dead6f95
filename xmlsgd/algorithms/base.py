"""What an algorithm is: the policy of a run. It decides sizes, rates and merges; it never sees data or gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np

    from ..records import Report


class Comm(Protocol):
    """What an algorithm may do with replicas when it merges; an executor is one."""

    def reduce(self, weights: Sequence[float]) -> np.ndarray:
        """Return the sum of weights[w] times replica w."""
        ...

    def blend(self, target: np.ndarray, alpha: float = 1.0, members: Sequence[int] | None = None) -> None:
        """Move the replicas of `members` (default: all) towards `target` by a share `alpha`."""
        ...


class Algorithm:
    """Base of all algorithms: a picklable dataclass of hyperparameters; run state is made in `start`.

    `shared`: workers update the center itself; otherwise each has its own replica.
    """

    shared: ClassVar[bool] = False

    def start(self, workers: Sequence[int], center: np.ndarray) -> None:
        """Make the run state for these workers."""

    def batch_size(self, w: int) -> int:
        """Return the rows of the next batch of worker `w`; 0 makes it wait."""
        raise NotImplementedError

    def learning_rate(self, w: int, rows: int) -> float:
        """Return the rate of a batch of `rows` on worker `w`, before the schedule's factor."""
        raise NotImplementedError

    def submitted(self, w: int, rows: int) -> None:
        """Note that worker `w` got a batch."""

    def finished(self, report: Report) -> None:
        """Note that a batch is done."""

    def merge_due(self, busy: Collection[int]) -> bool:
        """Return whether replicas are to be merged now."""
        return False

    def merge(self, comm: Comm) -> None:
        """Merge the replicas."""
