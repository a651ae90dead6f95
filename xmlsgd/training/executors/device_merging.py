"""Merge replicas in the memory of their GPU: the same rules, on arrays that stay there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ...nn.parameters import Layout
from ..learner import DeviceCopy, Learner
from ..merging import Merger, MergeRule
from ..shared_parameters import SharedParameters

SLICE = 1 << 24  # floats, 64 MB: few launches for a large model, and small temporary arrays of rules


class DeviceMerger(Merger):
    """Applies merge rules to replicas on one GPU, whose learners must be idle.

    All rows of W0 take part in every merge, as they cost little on a GPU. `fetch_center` copies the center back to the
    host; the learners copy their replicas back themselves.
    """

    on_device = True
    slice_floats = SLICE

    def __init__(self, shared: SharedParameters, layout: Layout, learners: Sequence[Learner]) -> None:
        super().__init__(shared, layout, 1)
        self._learners = learners
        self._device: Any = learners[0].device.with_own_stream()  # type: ignore[attr-defined]
        self._center = DeviceCopy(self._device, shared.params[0])

    def run(self, rule: MergeRule, members: Collection[int]) -> int:
        """Apply `rule` to every slice of the center and the replicas of `members`; return the floats of all vectors."""
        self._replicas = {w: self._learners[w].device_params() for w in members}
        with self._device.start():
            floats = super().run(rule, members)
            self._device.runtime.stream.synchronize()  # learners use other streams
        return floats

    def fetch_center(self) -> None:
        """Copy the center to the host if a merge has changed it since."""
        self._center.fetch()

    def copy_center(self, worker: int) -> None:
        """Copy the center to the replica of `worker` on the host and clear its merge states."""
        self.fetch_center()
        super().copy_center(worker)

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state, that of a worker if one is given, to a copy of the center."""
        with self._device.start():
            super().save_center(name, worker)

    def reset(self) -> None:
        """Clear merge states and marks; the center on the host counts from here on."""
        super().reset()
        self._center.invalidate()

    def _active(self, rule: MergeRule, members: list[int]) -> np.ndarray:
        """Return all rows of W0."""
        return np.ones(self._n_features, bool)

    def _others(self, members: list[int]) -> list[int]:
        """Return none: as all rows take part in every merge, there is no need to track which rows fall behind."""
        return []

    def _vector(self, worker: int | None) -> Any:
        """Return the replica of a worker on the GPU, the center for None."""
        return self._center.up_to_date() if worker is None else self._replicas[worker]

    def _zeros(self) -> Any:
        """Return the vector of a new merge state."""
        return self._device.to_device(np.zeros(self.layout.size, np.float32))
