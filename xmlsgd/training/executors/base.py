"""What an executor is: where steps run and whose clock counts. Waiting happens here and nowhere else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..messages import Left, Report
from .model import SharedModel
from .update_count import UpdateCount

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..learner import Job
    from ..merging import Merger, Rule
    from ..messages import Event, Sharing, Step
    from ..shared_parameters import Shape, Table


class Executor(ABC):
    """Base of all executors; a kind of executor gives `start`, `_begin`, `_next`, `now` and `close`.

    A replica is written by its worker while that worker is busy, by the coordinator while it is idle. With a shared
    model in place all workers write the center, on purpose and without locks (`Sharing`).

    workers : those alive, ascending. busy : those with a step. departures : of all who left so far. merge_threads,
    push_threads : threads that merge, and that pull and push. concurrent : whether workers write the shared model
    itself while others do. merge_seconds, merge_bytes : what merges have taken, read and written so far.
    transfer_seconds : what pulls and pushes have taken.
    """

    merge_threads = 1
    push_threads = 1
    concurrent = False

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.model: SharedModel
        self.count: UpdateCount
        self._begin_run()

    def _begin_run(self) -> None:
        """Have all workers again, and none of what an earlier run left."""
        self.workers = list(range(self.n_workers))
        self.busy: set[int] = set()
        self.departures: list[Left] = []
        self.merge_seconds, self.merge_bytes, self.transfer_seconds = 0.0, 0, 0.0

    @property
    def table(self) -> Table:
        """Return the memory of center, replicas and optimizer states."""
        return self.model.table

    @property
    def merger(self) -> Merger:
        """Return what applies the rules of merges."""
        return self.model.merger

    @property
    def center(self) -> np.ndarray:
        """Return the shared or merged model, float32 (n_params,)."""
        self.bring_center()
        center: np.ndarray = self.table.params[0]
        return center

    def bring_center(self) -> None:
        """Copy the shared model to this process's memory, if a device has trained it in its own."""
        self.model.bring_center()

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
        self.count.begins(w)
        begun = self.now()
        self._note_transfer(w, self.model.pull(step), begun)
        self._begin(replace(step, seen=self.count.seen[self.count.state_of(w)]))

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
            event = self.count.ends(event)
        elif isinstance(event, Left):
            self.workers.remove(w)
            self.busy.discard(w)
            self.departures.append(event)
            self.model.drop(w)
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
        self.count.pushes(worker, weight)
        begun = self.now()
        self._note_transfer(worker, self.model.push(worker, weight), begun)

    def _note_transfer(self, worker: int, n_bytes: int | None, begun: float) -> None:
        """Count a pull or push that has read and written `n_bytes` since second `begun`, None for none."""
        if n_bytes is not None:
            self.transfer_seconds += self._transferred(worker, n_bytes, begun)

    def _transferred(self, worker: int, n_bytes: int, begun: float) -> float:
        """Return the seconds of a worker's pull or push, which has read and written `n_bytes` since second `begun`."""
        return self.now() - begun

    def merge(self, rule: Rule, members: Collection[int], memory: int = 0, equal: bool = True) -> None:
        """Apply a rule to the center and the replicas of `members` (`Merger.run`)."""
        begun = self.now()
        n_bytes = self.model.merge(rule, members, memory, equal)
        self.merge_bytes += n_bytes
        self.merge_seconds += self._merged(members, n_bytes, begun)

    def _merged(self, members: Collection[int], n_bytes: int, begun: float) -> float:
        """Return the seconds of a merge of `members`, which has read and written `n_bytes` since second `begun`."""
        return self.now() - begun

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state to a copy of the center (`Merger.save_center`)."""
        self.model.save_center(name, worker)

    def set_aside(self) -> None:
        """Keep the center and the optimizer states."""
        self.model.set_aside()
        self.count.set_aside()

    def put_back(self) -> None:
        """Put center, replicas and states back to what was set aside; nobody may be busy."""
        self.model.put_back()
        self.count.put_back()

    def norm(self, worker: int) -> float:
        """Return the Euclidean norm of a replica."""
        self.model.bring([worker])
        replica = self.table.params[1 + worker]
        return float(np.sqrt(np.dot(replica, replica)))

    def learned(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return model and optimizer state as they lie in the table, float32, and the steps it has seen.

        Of several states it is the one of most steps: that of a worker which came late has hardly begun.
        """
        self.model.bring()
        steps = max(self.count.seen)
        state: np.ndarray = self.table.states[self.count.seen.index(steps)]
        return self.center, state, steps

    def result(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return what a later run goes on with: model and optimizer state, float32, and the steps it has seen.

        Both are this process's own memory.
        """
        return self.learned()

    def _prepare(self, job: Job, sharing: Sharing, make: Callable[[Shape], Table]) -> Shape:
        """Make the table with `make` and write the first model and states into it; return its shape."""
        self._begin_run()
        model = SharedModel(job, sharing, len(self.workers), make, self.merge_threads, self.push_threads)
        self.model, self.count = model, UpdateCount(model.shape.states, model.first_steps)
        return model.shape

    def _begin_anew(self, worker: int) -> None:
        """Give a worker that joins what it begins with."""
        self.model.begin_anew(worker)
        if self.model.own_states:
            self.count.begin_anew(worker, self.model.first_steps)
