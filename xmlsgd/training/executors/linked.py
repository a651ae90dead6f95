"""Merging replicas on several GPUs that NCCL links: on the first, to which slices of the others come and go back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ...devices.cuda.nccl import Links
from .on_device import DeviceMerger

if TYPE_CHECKING:
    import numpy as np

    from ...nn.parameters import Layout
    from ..learner import Learner
    from ..merging import Part, Rule, Slot
    from ..shared_parameters import Table


class LinkedMerger(DeviceMerger):
    """As `DeviceMerger`, with the center on the GPU of the first learner.

    A slice of every replica elsewhere comes to that GPU, and what a rule has made of it goes back, so that rules are
    the same for all machines. Learners are asked for their replicas while they are idle.
    """

    def __init__(self, table: Table, layout: Layout, learners: Sequence[Learner]) -> None:
        super().__init__(table, layout, learners)
        self._gpus: list[Any] = [self._device]  # one device each, with a stream of its own
        memories = [self._device.memory]
        for learner in learners:
            if learner.device.memory not in memories:
                memories.append(learner.device.memory)
                self._gpus.append(learner.device.beside())  # type: ignore[attr-defined]
        self._rank = [memories.index(learner.device.memory) for learner in learners]
        self._links = Links(self._gpus)
        self._away: list[tuple[int, Any, Any]] = []

    def run(self, rule: Rule, members: Collection[int], memory: int = 0, equal: bool = True) -> int:
        """Apply `rule` to every slice of the center and the replicas of `members`; return the floats of a vector."""
        floats = super().run(rule, members, memory, equal)
        for gpu in self._gpus[1:]:
            gpu.wait()  # learners go on in streams of their own
        return floats

    def _apply(self, rule: Rule, members: list[int], name: str, rows: slice | np.ndarray) -> None:
        """Apply the rule to one slice, and send back what came from elsewhere."""
        super()._apply(rule, members, name, rows)
        self._links.take_back(self._away)

    def _new_part(self, name: str, center: Any, replicas: dict[int, Any], touched: Any, slot: Slot) -> Part:
        """Return a part whose replicas all lie on the first GPU."""
        self._away, near = [], {}
        for w, replica in replicas.items():
            near[w] = replica
            if self._rank[w]:
                near[w] = self._device.runtime.buffer(f"replica {w}", replica.shape)
                self._away.append((self._rank[w], replica, near[w]))
        self._links.bring(self._away)
        return super()._new_part(name, center, near, touched, slot)
