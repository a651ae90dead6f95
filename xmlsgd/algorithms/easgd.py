"""Elastic averaging SGD: replicas and a center pull at each other.

Zhang, Choromanska, LeCun 2015 (arXiv 1412.6651): every `sync_every` updates w_j <- w_j - alpha (w_j - z) and
z <- z + alpha * sum of (w_j - z). Nobody is overwritten: replicas go on exploring around the center.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from ..training.merging import ParameterSlice
from .base import Comm
from .combining import Work
from .outer import check_momentum, fading
from .rounds import Rounds

PULL = 0.9  # n * alpha of the paper's experiments


@dataclass
class EASGD(Rounds):
    """correction : alpha, in [0, 2 (1 + mu) / (1 + mu + k)) for k learners; None for 0.9 / k; 0 pulls at nobody.

    sync_every : tau, updates between meetings, >= 1; of the paper's 1, 4, 16 and 64 the first with which two workers
    have less than a twentieth of their time in merges. center_momentum : mu, of the center, in [0, 1).
    asynchronous : a learner meets the center alone when it has done its updates, instead of waiting for all.
    """

    correction: float | None = None
    sync_every: int = 16
    center_momentum: float = 0.0
    asynchronous: bool = False

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges."""
        super().__post_init__()
        check_momentum(self.center_momentum, "center_momentum")
        if self.sync_every < 1:
            raise DataError(f"sync_every must be at least 1, got {self.sync_every}")

    def merge_state_vectors(self, n_workers: int) -> int:
        """Return the motion of the center, if it has momentum."""
        return int(self.center_momentum > 0)

    def start(self, workers: Sequence[int], n_rows: int) -> None:
        """Set the strength of the pull for this many learners; raise `DataError` for one that is not stable."""
        super().start(workers, n_rows)
        self.check(len(workers))
        self.merges = 0
        rows = self.sync_every * self.batch * len(workers)
        if self.sync_every > 1 and rows > n_rows:
            warnings.warn(
                f"sync_every = {self.sync_every} takes {rows} rows, more than an epoch of {n_rows}: learners meet at "
                "its end only",
                stacklevel=2,
            )

    @property
    def learners_now(self) -> int:
        """Return k, the learners that pull at the center."""
        return len(self.size)

    @property
    def alpha(self) -> float:
        """Return the strength of the pull; `correction` unless so many have joined that it is not stable any more."""
        k = max(self.learners_now, 1)
        if self.correction is None or self.correction >= self.bound(k):
            return self.pull(k)
        return self.correction

    def pull(self, k: int) -> float:
        """Return alpha for k learners."""
        return PULL / k

    def bound(self, k: int) -> float:
        """Return the alpha below which k replicas and the center contract where there is no gradient."""
        mu = self.center_momentum
        return 2 * (1 + mu) / (1 + mu + k)

    def check(self, k: int) -> None:
        """Raise `DataError` for a correction that is not stable with k learners."""
        if self.correction is not None and not 0 <= self.correction < self.bound(k):
            raise DataError(
                f"correction must be in [0, {self.bound(k):.4g}) for {k} learners, got {self.correction:.4g}"
            )

    def open_rows(self, w: int) -> float:
        """Return the rows of the updates that a learner has left before it meets the center."""
        return self.sync_every * self.batch - self.given[w]

    def merge_due(self, busy: Collection[int]) -> Collection[int]:
        """Return all learners when the last is done, or one by one."""
        if not self.asynchronous:
            return super().merge_due(busy)
        return [w for w in self.size if w not in busy and self.given[w] and not self.goes_on(w)][:1]

    def merge_all(self, comm: Comm, work: Mapping[int, Work]) -> None:
        """Let the learners and the center pull at each other."""
        self.merges += 1
        comm.merge(self.elastic, work, fading(self.center_momentum), equal=False)

    def elastic(self, params: ParameterSlice) -> None:
        """Move each learner by alpha towards the center, and the center by all that the learners moved."""
        alpha, total = np.float32(self.alpha), np.zeros_like(params.center)
        for replica in params.replicas.values():
            correction = alpha * (replica - params.center)
            replica -= correction
            total += correction
        self.move_center(params, total)

    def move_center(self, params: ParameterSlice, total: np.ndarray) -> None:
        """Move the center by the corrections and, if it has momentum, by its last motion."""
        if self.center_momentum:
            motion = params.state("motion")
            motion *= np.float32(self.center_momentum)
            motion += total
            total = motion
        params.center += total

    def notes(self) -> dict[str, object]:
        """Return the pull, the momentum of the center and how often learners have met."""
        return {"alpha": self.alpha, "center_momentum": self.center_momentum, "merges": self.merges}
