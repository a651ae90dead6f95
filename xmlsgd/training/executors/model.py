"""The model of a run: center, replicas and optimizer states in a table, and what devices hold of them elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...nn.network import state_layout
from ..learner import Order
from ..merging import Merger
from ..messages import Sharing
from ..shared_parameters import Shape, Table
from .on_device import DeviceMerger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ...nn.network import Network
    from ...nn.optimizers import Optimizer
    from ..deltas import Deltas
    from ..learner import Job, Learner
    from ..merging import Rule
    from ..messages import Step


class SharedModel:
    """The first model and states of a job, written into the table that `make` makes for `n_workers`.

    shape : of the table. merger : applies the rules of merges. own_states : whether each worker has a replica and an
    optimizer state. learners : of this process, whose devices may have a memory of their own. merge_threads,
    push_threads : threads that merge, and that pull and push.
    """

    def __init__(
        self, job: Job, sharing: Sharing, n_workers: int, make: Callable[[Shape], Table], merge_threads: int,
        push_threads: int,
    ) -> None:  # fmt: skip
        layout = job.network.layout
        self.shape = table_shape(job.network, job.optimizer, n_workers, sharing)
        self.table = make(self.shape)
        self.merger = Merger(self.table, layout, merge_threads)
        self.learners: Sequence[Learner] = ()
        self.own_states, self._first = sharing is Sharing.REPLICAS, job.start
        params, states = self.table.params, self.table.states
        if job.start is None:
            job.network.initialize(params[0], job.dataset.Y, job.seed, job.sample_weight)
        elif not np.may_share_memory(params, job.start.params):
            params[0] = job.start.params
            states[:] = job.start.state
        self._deltas: Deltas | None = None
        if sharing is Sharing.DELTA:
            from ..deltas import Deltas  # its kernels load Numba, which only workers need otherwise

            self._deltas = Deltas(self.table, layout, push_threads)
            self._X, self._order = job.dataset.X, Order(job.dataset.n_rows, job.seed)
        else:
            params[1:] = params[0]  # copies are pulled, as far as they are needed

    @property
    def first_steps(self) -> int:
        """Return the updates that the optimizer state of the start has seen."""
        return 0 if self._first is None else self._first.steps

    def employ(self, learners: Sequence[Learner]) -> None:
        """Take learners of this process; merge replicas on their GPU where all of them lie on one."""
        self.learners = learners
        memories = {learner.device.memory for learner in learners}
        if self.own_states and None not in memories and len(memories) == 1:
            self.merger = DeviceMerger(self.table, self.merger.layout, learners)
        for learner in learners:
            learner.warm_up()

    def bring_center(self) -> None:
        """Copy the shared model to this process's memory, if a device has trained it in its own."""
        if self.own_states:
            self.merger.bring_center()
        else:
            self.bring()

    def bring(self, workers: Iterable[int] | None = None) -> None:
        """Copy to the table what idle workers, all by default, have trained in a memory of their device."""
        for learner in self._learners_of(workers):
            learner.bring()

    def outdate(self, workers: Iterable[int] | None = None) -> None:
        """Tell workers, all by default, that their rows of the table have been written."""
        for learner in self._learners_of(workers):
            learner.outdate()

    def _learners_of(self, workers: Iterable[int] | None) -> list[Learner]:
        """Return the learners of workers, as far as they are in this process."""
        learners = self.learners
        return list(learners) if workers is None else [learners[w] for w in workers if w < len(learners)]

    def pull(self, step: Step) -> int | None:
        """Copy the center for a step; return the bytes read and written, None where nobody steps on a copy."""
        if self._deltas is None:
            return None
        return 4 * self._deltas.pull(step.worker, np.unique(self._X.row_entries(self._order.rows(step))))

    def push(self, w: int, weight: float) -> int | None:
        """Add `weight` times what the last step on a copy changed to the center; return the bytes, or None."""
        return None if self._deltas is None else 4 * self._deltas.push(w, weight)

    def drop(self, w: int) -> None:
        """Forget what a worker that is gone has pulled."""
        if self._deltas:
            self._deltas.drop(w)

    def merge(self, rule: Rule, members: Collection[int], memory: int, equal: bool) -> int:
        """Apply a rule to the center and the replicas of `members` (`Merger.run`); return the bytes."""
        if not self.merger.on_device:
            self.bring(members)
        floats = self.merger.run(rule, members, memory, equal)
        if not self.merger.on_device:
            self.outdate(members)
        return 4 * 2 * (1 + len(members)) * floats

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state to a copy of the center (`Merger.save_center`)."""
        self.bring_center()
        self.merger.save_center(name, worker)

    def set_aside(self) -> None:
        """Keep the center and the optimizer states."""
        self.bring()
        self.merger.set_aside()

    def put_back(self) -> None:
        """Put center, replicas and states back to what was set aside; nobody may be busy."""
        self.bring()
        self.merger.put_back()
        self.outdate()

    def begin_anew(self, w: int) -> None:
        """Give a worker that joins the center and, if it has one of its own, the optimizer state of the start."""
        self.bring([w])
        self.merger.copy_center(w)
        self.outdate([w])
        if self.own_states:
            self.table.states[w] = 0 if self._first is None else self._first.state


def table_shape(network: Network, optimizer: Optimizer, n_workers: int, sharing: Sharing) -> Shape:
    """Return the shape of the table of a run."""
    model, state = network.layout.size, state_layout(network.layout, optimizer).size
    replicas = {Sharing.IN_PLACE: 0, Sharing.DELTA: 2 * n_workers, Sharing.REPLICAS: n_workers}[sharing]
    states = n_workers if sharing is Sharing.REPLICAS else 1
    return Shape(model, state, replicas, states, network.n_features + network.n_labels)
