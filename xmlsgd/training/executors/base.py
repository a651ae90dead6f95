"""The executor interface: where spans run and whose clock counts. Only executors wait."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import DataError, warn
from ...nn.network import state_layout
from ..job import Job
from ..learner import Learner, RowOrder
from ..merging import Merger, MergeRule
from ..messages import Event, Left, Report, Sharing, Span
from ..shared_parameters import SharedParameters, SharedShape, WorkerArrays, shared_shape, worker_arrays
from .device_merging import DeviceMerger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ...devices.base import Device
    from ..deltas import Deltas


class Learned(NamedTuple):
    """The model and the optimizer state, float32 (n_params,) and (state size,), and the updates the state has seen."""

    params: np.ndarray
    state: np.ndarray
    updates: int


class Executor(ABC):
    """Base class of executors. Subclasses implement `start`, `_begin`, `_next` and `close`.

    `start` calls `_prepare`, then `_make_learners` if the spans run in this process, and at last `_start_clock`. Where
    the shared parameters are not new ones in this process, override `_make_shared`.

    A replica is written by its worker while that worker is busy, and by the coordinator while it is idle. With
    `Sharing.IN_PLACE` workers write the center at once, on purpose and without locks; those with a memory of their own
    push differences to it.

    Attributes
    ----------
    shared : SharedParameters
        Center, replicas and optimizer states.
    merger : Merger
        Applies merge rules to the shared parameters.
    workers : list of int
        Workers that are alive, ascending.
    busy : set of int
        Workers that have a span.
    left : list of Left
        Workers that left the run so far.
    lost : set of int
        Lost workers that `wait` has not reported yet; their replicas were not merged.
    sharing_of, arrays : list of Sharing, list of WorkerArrays
        How each worker uses the shared model, and the shared arrays that it trains.
    updates_seen : list of int
        Updates that each optimizer state has seen.
    concurrent : bool
        Whether workers run at the same time.
    merges, merge_seconds, merge_bytes : int, float, int
        Number of merges so far, their duration, and the bytes they read and wrote, including norms of replicas and
        copies of the center.
    transfer_seconds, transfer_bytes : float, int
        Duration of the pulls and pushes so far, and the bytes they read and wrote.
    n_threads : int
        Threads of the coordinator, which merge, pull and push.
    """

    n_threads = 1
    concurrent = False
    _started = 0.0  # on the wall clock

    def __init__(self, n_workers: int) -> None:
        if n_workers < 1:
            raise DataError("an executor needs at least one device, got none")
        self.n_workers = n_workers
        self.shared: SharedParameters
        self.merger: Merger
        self.sharing_of: Sequence[Sharing]
        self.arrays: list[WorkerArrays]
        self.updates_seen: list[int]
        self._reset()

    def _reset(self) -> None:
        """Forget an earlier run; all workers are back."""
        self.workers = list(range(self.n_workers))
        self.busy: set[int] = set()
        self.left: list[Left] = []
        self.lost: set[int] = set()
        self._errors: dict[int, BaseException] = {}  # worker -> what it raised, since the last report of any worker
        self.merges, self.merge_seconds, self.merge_bytes = 0, 0.0, 0
        self.transfer_seconds, self.transfer_bytes = 0.0, 0
        self._deltas: Deltas | None = None
        self.learners: Sequence[Learner] = ()
        self._updates_made = 0
        self._updates_read: dict[int, int] = {}  # worker -> `_updates_made` when its current span read the model

    def _prepare(self, job: Job, sharing_of: Sequence[Sharing], copies: bool = False) -> SharedShape:
        """Make the shared parameters with the initial model and optimizer states; return their shape.

        sharing_of : how each worker uses the shared model. copies : whether those that write in place train copies.
        """
        self._reset()
        layout = job.network.layout
        self.sharing_of, self.arrays = sharing_of, worker_arrays(sharing_of, copies)
        state = state_layout(layout, job.optimizer).size
        shape = shared_shape(layout.size, state, job.network.n_features, self.arrays)
        self.shared = self._make_shared(job, shape)
        self.merger = Merger(self.shared, layout, self.n_threads)
        self._has_replicas, self._job_start = Sharing.REPLICAS in sharing_of, job.start
        self.updates_seen = [0 if job.start is None else job.start.updates] * shape.states
        self._snapshot: tuple[np.ndarray, np.ndarray, list[int]] | None = None
        params, states = self.shared.params, self.shared.states
        if job.start is None:
            job.network.initialize(params[0], job.dataset.Y, job.seed, job.sample_weight)
        elif not np.may_share_memory(params, job.start.params):
            params[0] = job.start.params
            states[:] = job.start.state
        if self._has_replicas:
            params[1:] = params[0]
        elif len(params) > 1:
            from ..deltas import Deltas  # imports Numba, which the coordinator needs for nothing else

            in_place = [w for w, kind in enumerate(sharing_of) if kind is Sharing.IN_PLACE]
            self._deltas = Deltas(self.shared, layout, self.arrays, self.n_threads, in_place)
            self._X, self._order = job.dataset.X, RowOrder(job.dataset.n_rows, job.seed)
        return shape

    def _make_shared(self, job: Job, shape: SharedShape) -> SharedParameters:
        """Return shared parameters, zeros or those of the job's start."""
        return SharedParameters.in_memory(shape)

    def _make_learners(self, job: Job, devices: Sequence[Device]) -> None:
        """Make the learner of each worker in this process; merge on the GPU if all replicas are there."""
        self.learners = [
            Learner.of(job, device, self.shared, arrays) for device, arrays in zip(devices, self.arrays, strict=True)
        ]
        memories = {device.memory for device in devices}
        if self._has_replicas and None not in memories and len(memories) == 1:
            self.merger = DeviceMerger(self.shared, self.merger.layout, self.learners)
        for learner in self.learners:
            learner.load_kernels()

    @property
    def center(self) -> np.ndarray:
        """The shared or merged model, float32 (n_params,)."""
        self.fetch_center()
        return self.shared.params[0]

    def writes_in_place(self, worker: int) -> bool:
        """Return whether a worker writes the center while others do."""
        return self.concurrent and self.sharing_of[worker] is Sharing.IN_PLACE

    @property
    def expects_workers(self) -> bool:
        """Whether a worker has yet to join."""
        return False

    @abstractmethod
    def start(self, job: Job, sharing: Sharing) -> None:
        """Make the shared parameters and the learners, compile the kernels, then set the clock to zero.

        A job with a `start` begins there.
        """

    def submit(self, span: Span) -> None:
        """Give a span to an idle worker."""
        w, begun = span.worker, self.now()
        self.busy.add(w)
        self._reads_model(w)
        if self._deltas is not None and self.arrays[w].base is not None:
            features = np.unique(self._X.columns_of(self._order.rows(span)))
            self._count_transfer(w, self._deltas.pull(w, features), begun)
        self._begin(replace(span, seen=self.updates_seen[self.arrays[w].state]))

    def wait(self, until: float | None = None) -> Event | None:
        """Return the next event in clock order: a report, or a worker that leaves or joins.

        Return None if nothing happens before second `until`. `Serial` ignores `until`, as its spans run in this call.
        """
        event = self._next(until)
        if event is None:
            return None
        w = event.worker
        if isinstance(event, Report):
            self.busy.discard(w)
            self._errors.clear()
            self.updates_seen[self.arrays[w].state] += event.updates
            staleness: float = self._updates_made - self._updates_read[w]
            self._updates_made += event.updates
            if self.writes_in_place(w):  # each update of its span reads the model again
                staleness /= event.updates
            return replace(event, staleness=staleness)
        if isinstance(event, Left):
            self.workers.remove(w)
            self.busy.discard(w)
            self.lost.discard(w)
            self.left.append(event)
            if self._deltas:
                self._deltas.drop(w)
        else:
            self.workers = sorted([*self.workers, w])
            self._initialize(w)
        return event

    @abstractmethod
    def _begin(self, span: Span) -> None:
        """Start a span."""

    @abstractmethod
    def _next(self, until: float | None) -> Event | None:
        """Return the next event, or None if there is none before second `until`."""

    def _record_error(self, w: int, error: BaseException, running: Collection[int]) -> None:
        """Record the error of worker `w`, one of those `running`; the worker counts as lost.

        Raises the first error if all of them have raised one and no span has succeeded in between: trying again would
        not help.
        """
        self._errors[w] = error
        if self._errors.keys() >= set(running):
            raise next(iter(self._errors.values()))

    def _lost_worker(self, w: int, reason: str, replaced: bool = False) -> Left:
        """Warn that worker `w` is lost, and whether another takes its place; return its event."""
        text = f"worker {w} is lost: {reason}; what it had not merged is trained again"
        warn(f"{text}; it is {'replaced' if replaced else 'not replaced'}")
        return Left(w, reason)

    def _start_clock(self) -> None:
        """Set the wall clock to zero."""
        self._started = time.perf_counter()

    def now(self) -> float:
        """Return the seconds of the run so far."""
        return time.perf_counter() - self._started

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock: callbacks and checkpoints take no time of the run, its trials and its rounds."""
        begun = self.now()
        try:
            yield
        finally:
            self._started += self.now() - begun

    @abstractmethod
    def close(self) -> None:
        """Release workers and files; the center stays readable."""

    def push(self, worker: int) -> None:
        """Add the change of a worker's last span to the center, if workers step on copies of it."""
        if self._deltas is not None and self.arrays[worker].base is not None:
            begun = self.now()
            self._count_transfer(worker, self._deltas.push(worker), begun)

    def merge(self, rule: MergeRule, members: Collection[int]) -> None:
        """Apply a rule to the center and the replicas of `members` (`Merger.run`)."""
        begun = self.now()
        on_host = () if self.merger.on_device else members  # whose replicas are merged on the host
        self._fetch(on_host, state=False)
        floats = self.merger.run(rule, members)
        self._invalidate(on_host, state=False)
        self.merges += 1
        self._count_merging(members, 2 * floats, begun)  # read and written

    def _count_merging(self, members: Collection[int], floats: int, begun: float) -> None:
        """Count a merge, or a norm or copy for one, that read and wrote `floats` since second `begun`."""
        self.merge_bytes += 4 * floats
        self.merge_seconds += self._charge(members, 4 * floats, begun)

    def _count_transfer(self, worker: int, floats: int, begun: float) -> None:
        """Count a pull or push that read and wrote `floats` since second `begun`, unless it only serves simulation."""
        if self.sharing_of[worker] is Sharing.DELTA:
            self.transfer_bytes += 4 * floats
            self.transfer_seconds += self._charge([worker], 4 * floats, begun)

    def _charge(self, workers: Collection[int], n_bytes: int, begun: float) -> float:
        """Return the seconds since `begun`; a simulated clock charges `workers` the time to move `n_bytes` instead."""
        return self.now() - begun

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state to a copy of the center (`Merger.save_center`)."""
        begun = self.now()
        self.merger.save_center(name, worker)
        self._count_merging((), 2 * self.shared.params.shape[1], begun)

    def save_snapshot(self) -> None:
        """Copy the center and the optimizer states in memory; clear the merge states, as `restore_snapshot` does."""
        self._fetch()
        self._snapshot = self.center.copy(), self.shared.states.copy(), list(self.updates_seen)
        self.merger.clear_states()

    def restore_snapshot(self) -> None:
        """Set center, replicas and states to the snapshot, if there is one; no worker may be busy."""
        if self._snapshot is None:
            return
        self.shared.params[:], self.shared.states[:], updates_seen = self._snapshot
        self.merger.reset()
        self._invalidate()
        self.updates_seen = list(updates_seen)

    def snapshot(self) -> Learned:
        """Return what `learned` returned when the snapshot was saved."""
        assert self._snapshot is not None
        return self._learned(*self._snapshot)

    def _learned(self, params: np.ndarray, states: np.ndarray, seen: Sequence[int]) -> Learned:
        """Return the model and the state that has seen most updates, of a live worker if there is one."""
        alive = sorted({self.arrays[w].state for w in self.workers}) or range(len(seen))
        state = max(alive, key=lambda i: seen[i])
        return Learned(params, states[state], seen[state])

    def norm(self, worker: int) -> float:
        """Return the Euclidean norm of a replica divided by its number of parameters, padding included."""
        begun = self.now()
        self._fetch([worker], state=False)
        replica = self.shared.params[1 + worker]
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged run shows in the loss
            norm = float(np.sqrt(np.dot(replica, replica))) / len(replica)
        self._count_merging([worker], len(replica), begun)
        return norm

    def learned(self) -> Learned:
        """Return views of the model and the optimizer state.

        Of several states, the one with most updates of a live worker is returned: a worker that joined late has seen
        few, and a worker that died may have left its state half written.
        """
        self._fetch()
        return self._learned(self.center, self.shared.states, self.updates_seen)

    def result(self) -> Learned:
        """Return the same as `learned`, in memory that outlives the executor."""
        return self.learned()

    def fetch_center(self) -> None:
        """Copy the center from the device to the host if it is newer there."""
        if self._has_replicas:
            self.merger.fetch_center()
        else:  # workers that pull the center train a copy, and may be in the middle of a span
            self._fetch([w for w in self.workers if self.arrays[w].base is None], state=False)

    def _fetch(self, workers: Iterable[int] | None = None, state: bool = True) -> None:
        """Copy to the host the models that idle workers (default: all) have trained in the memory of a device.

        state : whether to copy their optimizer states, too, which merges do not need.
        """
        for learner in self._learners_of(workers):
            learner.fetch(state)

    def _invalidate(self, workers: Iterable[int] | None = None, state: bool = True) -> None:
        """Tell workers (default: all) that their models, and with `state` their optimizer states, were written."""
        for learner in self._learners_of(workers):
            learner.invalidate(state)

    def _learners_of(self, workers: Iterable[int] | None) -> list[Learner]:
        """Return the learners in this process of `workers`, by default of all that are alive."""
        n = len(self.learners)
        return [self.learners[w] for w in (self.workers if workers is None else workers) if w < n]

    def _reads_model(self, worker: int) -> None:
        """Note that a span of a worker reads the model now; its staleness counts the updates of others since."""
        self._updates_read[worker] = self._updates_made

    def _initialize(self, worker: int) -> None:
        """Give a worker that joins a copy of the center, and the initial optimizer state if it has its own."""
        if self.sharing_of[worker] is Sharing.IN_PLACE:
            return
        if self._has_replicas:
            self.merger.copy_center(worker)
        self._invalidate([worker])
        state = self.arrays[worker].state
        self.shared.states[state] = 0 if self._job_start is None else self._job_start.state
        self.updates_seen[state] = 0 if self._job_start is None else self._job_start.updates
