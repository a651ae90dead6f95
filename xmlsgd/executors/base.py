"""What an executor is: where steps run and whose clock counts. Waiting happens here and nowhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..learner import Order
from ..merging import Merger
from ..network import state_layout
from ..records import Left, Report, Sharing
from ..table import Shape, Table
from .linked import LinkedMerger
from .on_device import DeviceMerger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ..deltas import Deltas
    from ..learner import Job, Learner
    from ..merging import Rule
    from ..network import Network
    from ..optimizers import Optimizer
    from ..records import Event, Step


class Executor(ABC):
    """Base of all executors; a kind of executor gives `start`, `_begin`, `_next`, `now` and `close`.

    A replica is written by its worker while that worker is busy, by the coordinator while it is idle. With a shared
    model in place all workers write the center, on purpose and without locks (`Sharing`).

    workers : those alive, ascending. busy : those with a step. departures : of all who left so far. merge_threads,
    push_threads : threads that merge, and that pull and push. in_place : whether workers write the shared model itself
    while others do. merge_seconds, merge_bytes : what merges have taken, read
    and written so far. transfer_seconds : what pulls and pushes have taken.
    """

    merge_threads = 1
    nccl = False  # whether replicas on several GPUs are merged on one of them
    push_threads = 1
    in_place = False

    def __init__(self, n_workers: int) -> None:
        self.workers = list(range(n_workers))
        self.busy: set[int] = set()
        self.departures: list[Left] = []
        self.merge_seconds, self.merge_bytes, self.transfer_seconds = 0.0, 0, 0.0
        self.table: Table
        self.merger: Merger
        self._seen: list[int]
        self._deltas: Deltas | None = None
        self._own_states = False
        self._lazy: Sequence[Learner] = ()  # of this process, whose devices may have a memory of their own

    @property
    def center(self) -> np.ndarray:
        """Return the shared or merged model, float32 (n_params,)."""
        self.bring_center()
        center: np.ndarray = self.table.params[0]
        return center

    def bring_center(self) -> None:
        """Copy the shared model to this process's memory, if a device has trained it in its own."""
        if self._own_states:
            self.merger.bring_center()
        else:
            self._bring(range(len(self._lazy)))

    @property
    def n_params(self) -> int:
        """Return the number of parameters, padding included."""
        return int(self.table.params.shape[1])

    @property
    def merges(self) -> int:
        """Return the number of merges so far."""
        return self.merger.merges

    @property
    def expecting(self) -> bool:
        """Return whether a worker is yet to join."""
        return False

    @abstractmethod
    def start(self, job: Job, sharing: Sharing) -> None:
        """Make the table and the learners, compile the kernels, then set the clock to zero.

        A job with a `start` begins there.
        """

    def submit(self, step: Step) -> None:
        """Give an idle worker a step."""
        w = step.worker
        self.busy.add(w)
        self._read[w] = self._updates
        if self._deltas:
            begun, features = self.now(), np.unique(self._X.row_entries(self._order.rows(step)))
            self.transfer_seconds += self._transferred(w, 4 * self._deltas.pull(w, features), begun)
        self._begin(replace(step, seen=self._seen[self._state_of(w)]))

    def wait(self, until: float | None = None) -> Event | None:
        """Return what happens next, in clock order: a report, or a worker that leaves or joins.

        None when nothing happens before second `until`. An executor in which nothing happens by itself never gives up.
        """
        event = self._next(until)
        if event is None:
            return None
        w = event.worker
        if isinstance(event, Report):
            self.busy.discard(w)
            self._seen[self._state_of(w)] += event.updates
            self._made[w] = event.updates
            event = replace(event, staleness=self._updates - self._read[w])
        elif isinstance(event, Left):
            self.workers.remove(w)
            self.busy.discard(w)
            self.departures.append(event)
            if self._deltas:
                self._deltas.drop(w)
        else:
            self.workers = sorted([*self.workers, w])
            self._begin_anew(w)
        return event

    @abstractmethod
    def _begin(self, step: Step) -> None:
        """Start a step."""

    @abstractmethod
    def _next(self, until: float | None) -> Event | None:
        """Return the next event, None when there is none before second `until`."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds of the run so far."""

    @abstractmethod
    def close(self) -> None:
        """Release workers and files; the center stays readable."""

    def push(self, worker: int, weight: float) -> None:
        """Add `weight` times what a worker's last step changed to the center, where workers step on copies of it.

        A step of weight 0 makes nobody's model older.
        """
        made = self._made.pop(worker)
        if weight:
            self._updates += made
        if self._deltas:
            begun = self.now()
            self.transfer_seconds += self._transferred(worker, 4 * self._deltas.push(worker, weight), begun)

    def _transferred(self, worker: int, n_bytes: int, begun: float) -> float:
        """Return the seconds of a worker's pull or push, which has read and written `n_bytes` since second `begun`."""
        return self.now() - begun

    def merge(self, rule: Rule, members: Collection[int], memory: int = 0, equal: bool = True) -> None:
        """Apply a rule to the center and the replicas of `members` (`Merger.run`)."""
        begun = self.now()
        if not self.merger.on_device:
            self._bring(members)
        n_bytes = 4 * 2 * (1 + len(members)) * self.merger.run(rule, members, memory, equal)
        if not self.merger.on_device:
            self._outdate(members)
        self.merge_bytes += n_bytes
        self.merge_seconds += self._merged(members, n_bytes, begun)

    def _merged(self, members: Collection[int], n_bytes: int, begun: float) -> float:
        """Return the seconds of a merge of `members`, which has read and written `n_bytes` since second `begun`."""
        return self.now() - begun

    def keep(self, slot: str) -> None:
        """Make a slot of the merge rules a copy of the center."""
        self.bring_center()
        self.merger.keep(slot)

    def checkpoint(self) -> None:
        """Keep the center and the optimizer states."""
        self._bring(range(len(self._lazy)))
        self.merger.checkpoint()
        self._saved = list(self._seen)

    def restore(self) -> None:
        """Put center, replicas and states back to the checkpoint; nobody may be busy."""
        self._bring(range(len(self._lazy)))
        self.merger.restore()
        self._outdate(range(len(self._lazy)))
        self._seen = list(self._saved)

    def norm(self, worker: int) -> float:
        """Return the Euclidean norm of a replica."""
        self._bring([worker])
        replica = self.table.params[1 + worker]
        return float(np.sqrt(np.dot(replica, replica)))

    def result(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return what a later run goes on with: model and optimizer state, float32, and the steps it has seen.

        Both are this process's own memory.
        """
        self._bring(range(len(self._lazy)))
        state: np.ndarray = self.table.states[0]
        return self.center, state, max(self._seen)

    def _prepare(self, job: Job, sharing: Sharing, make: Callable[[Shape], Table]) -> Shape:
        """Make the table with `make` and write the first model and states into it; return its shape."""
        layout, shape = job.network.layout, table_shape(job.network, job.optimizer, len(self.workers), sharing)
        self.table, self._lazy = make(shape), ()
        self.merger = Merger(self.table, layout, self.merge_threads)
        if job.start is None:
            job.network.initialize(self.center, job.dataset.Y, job.seed)
        elif not np.may_share_memory(self.center, job.start.params):
            self.center[:] = job.start.params
            self.table.states[:] = job.start.state
        if sharing is not Sharing.DELTA:  # copies are pulled, as far as they are needed
            self.table.params[1:] = self.center
        self._first, self._own_states = job.start, sharing is Sharing.REPLICAS
        self._seen = [0 if job.start is None else job.start.steps] * shape.states  # updates, of each optimizer state
        self._X, self._order = job.dataset.X, Order(job.dataset.n_rows, job.seed)
        self._saved = list(self._seen)
        self._updates, self._read = 0, dict.fromkeys(self.workers, 0)
        self._made: dict[int, int] = {}  # updates of a worker's last step, until they are pushed
        self._deltas = None
        if sharing is Sharing.DELTA:
            from ..deltas import Deltas  # its kernels load Numba, which only workers need otherwise

            self._deltas = Deltas(self.table, layout, self.push_threads)
        return shape

    def _employ(self, learners: Sequence[Learner]) -> None:
        """Take learners of this process, whose devices may have a memory of their own; merge there if it is one."""
        self._lazy = learners
        memories = {learner.device.memory for learner in learners}
        if self._own_states and None not in memories and (len(memories) == 1 or self.nccl):
            kind = DeviceMerger if len(memories) == 1 else LinkedMerger
            self.merger = kind(self.table, self.merger.layout, learners)
        for learner in learners:
            learner.warm_up()

    def _state_of(self, worker: int) -> int:
        """Return which optimizer state a worker has: its own, or the one of a shared model."""
        return worker if self._own_states else 0

    def _bring(self, workers: Iterable[int]) -> None:
        """Copy to the table what idle workers have trained in a memory of their device."""
        for w in workers:
            if w < len(self._lazy):
                self._lazy[w].bring()

    def _outdate(self, workers: Iterable[int]) -> None:
        """Tell workers that their rows of the table have been written."""
        for w in workers:
            if w < len(self._lazy):
                self._lazy[w].outdate()

    def _begin_anew(self, worker: int) -> None:
        """Give a worker that joins the center and, if it has one of its own, the optimizer state of the start."""
        self._bring([worker])
        self.merger.copy_center(worker)
        self._outdate([worker])
        if self._own_states:
            self.table.states[worker] = 0 if self._first is None else self._first.state
            self._seen[worker] = 0 if self._first is None else self._first.steps


def table_shape(network: Network, optimizer: Optimizer, n_workers: int, sharing: Sharing) -> Shape:
    """Return the shape of the table of a run."""
    model, state = network.layout.size, state_layout(network.layout, optimizer).size
    replicas = {Sharing.IN_PLACE: 0, Sharing.DELTA: 2 * n_workers, Sharing.REPLICAS: n_workers}[sharing]
    states = n_workers if sharing is Sharing.REPLICAS else 1
    return Shape(model, state, replicas, states, network.n_features + network.n_labels)
