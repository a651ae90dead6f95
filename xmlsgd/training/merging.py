"""Merging of replicas, a slice at a time: an algorithm writes its rule for one slice, this applies it to the model.

Slices are merged by several threads. Of the input layer only rows take part in which some member differs from the
center, or which an outer momentum still moves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Protocol

import numpy as np

from ..nn.parameters import Layout
from .shared_parameters import Table

# Floats, 1 MB a vector. Smaller ones would lie in a level-2 cache, but each operation on a slice takes the interpreter,
# for which threads wait: two threads merged two replicas in 36 ms with 1 << 16, in 19 with this, one in 24 and 20.
SLICE = 1 << 18
DENSE_SHARE = 0.5  # of the input rows: beyond it, gathering rows costs more than merging all of them


@dataclass(eq=False)
class ParameterSlice:
    """Rows of one tensor at a merge. All arrays are float32 (rows, width), written in place.

    center : the shared model. replicas : those of the members, by worker. touched : bool (members, rows), who has
    trained on these rows of W0 since the last merge, NumPy's also on a GPU; None for other tensors. state : merge
    state, `(name, worker=None) -> rows` of a vector that the rule keeps between merges, float32, zeros at first; that
    of a worker is lost when it leaves. clear : sets one to zeros, if an earlier merge has made it.
    """

    name: str
    center: np.ndarray
    replicas: dict[int, np.ndarray]
    touched: np.ndarray | None
    state: Callable[..., np.ndarray]
    clear: Callable[[str], None] = lambda name: None

    def weighted_sum(self, weights: Mapping[int, float]) -> np.ndarray:
        """Return the sum of weights[w] times replica w, a new array; the order is that of the members."""
        (w, replica), *others = self.replicas.items()
        total = np.float32(weights[w]) * replica
        for w, replica in others:
            total += np.float32(weights[w]) * replica
        return total

    def broadcast(self) -> None:
        """Copy the center to the members."""
        for replica in self.replicas.values():
            replica[:] = self.center


MergeRule = Callable[[ParameterSlice], None]


class Comm(Protocol):
    """What an algorithm may do with replicas when it merges; an executor is one."""

    def merge(
        self, rule: MergeRule, members: Collection[int], fade_merges: int = 0, ends_at_center: bool = True
    ) -> None:
        """Apply `rule` to every slice of the center and of the replicas of `members` (`Merger.run`)."""

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state, that of a worker if one is given, to a copy of the center."""

    def norm(self, worker: int) -> float:
        """Return the Euclidean norm of a replica, over the number of its parameters."""

    def now(self) -> float:
        """Return the seconds of the run so far."""


class Merger:
    """Applies rules to a table whose parameters have `layout`, W0 first."""

    on_device = False  # whether replicas are merged in the memory of their device
    slice_floats = SLICE

    def __init__(self, table: Table, layout: Layout, n_threads: int) -> None:
        self.table, self.layout = table, layout
        self._input = next(iter(layout.shapes))
        offsets = layout.offsets
        self._places = {name: (offsets[name], (shape[0], prod(shape[1:]))) for name, shape in layout.shapes.items()}
        self._n_features = layout.shapes[self._input][0]
        n_workers = len(table.params) - 1
        # Rows of W0 in which a worker differs from the center though it has not touched them since its last merge.
        self._behind = np.zeros((n_workers, self._n_features), bool)
        self._moving = np.zeros(self._n_features, np.int64)  # the last merge in which momentum still moves a row
        self._changed: np.ndarray | None = None  # rows of W0 that a merge changes in the center, if not all take part
        self._state: dict[tuple[str, int | None], np.ndarray] = {}
        self.saved: tuple[np.ndarray, np.ndarray] | None = None
        # Kept: the memory of temporary arrays is that of a thread, and lost with it.
        self._pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None
        self._lock = Lock()  # slices are merged by several threads, the first of which makes a state
        self.merges = 0

    def run(self, rule: MergeRule, members: Collection[int], fade_merges: int = 0, ends_at_center: bool = True) -> int:
        """Apply `rule` to every slice of the center and the replicas of `members`; return the floats of all vectors.

        Those are the center, the replicas, and the merge states that the rule asks for. fade_merges : merges for which
        the rule goes on to move a row that nobody touches. ends_at_center : whether it leaves the members equal to the
        center.
        """
        members = sorted(members)
        self.merges += 1
        active = self._active(members, fade_merges, ends_at_center)
        rows = np.flatnonzero(active)
        if len(rows) > DENSE_SHARE * self._n_features:
            rows = np.arange(self._n_features)
        others = self._others(members)
        self._changed = np.zeros(self._n_features, bool) if others else None
        each = map if self._pool is None else self._pool.map
        floats = sum(each(lambda place: self._apply(rule, members, *place), list(self._slices(rows))))
        if self._changed is not None:
            self._behind[others] |= self._changed
        self._behind[members] = False if ends_at_center else active
        self.table.touched[members] = 0
        return floats

    def copy_center(self, worker: int) -> None:
        """Make the replica of `worker` a copy of the center, and forget what rules kept for it."""
        self.table.params[1 + worker] = self.table.params[0]
        self.table.touched[worker] = 0
        self._behind[worker] = False
        for key in [key for key in self._state if key[1] == worker]:
            del self._state[key]

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state, that of a worker if one is given, to a copy of the whole center."""
        self._state[name, worker] = self._vector(None).copy()

    def fetch_center(self) -> None:
        """Do nothing: the center is where merges write it."""

    def set_aside(self) -> None:
        """Keep the center and the optimizer states, in memory, in place of what was set aside before.

        Merge states are cleared, so that whatever follows begins without motion, as it does when it is put back.
        """
        self.saved = self.table.params[0].copy(), self.table.states.copy()
        self._clear_states()

    def put_back(self) -> None:
        """Put center, replicas and optimizer states back to what was set aside; clear the merge states.

        Where nothing was set aside nothing is done.
        """
        if self.saved is None:
            return
        model, states = self.saved
        self.table.params[:] = model
        self.table.states[:] = states
        self.table.touched[:] = 0
        self._behind[:] = False
        self._clear_states()

    def _clear_states(self) -> None:
        """Clear the merge states: nothing moves on."""
        self._moving[:] = 0
        self._state.clear()

    def _active(self, members: list[int], fade_merges: int, ends_at_center: bool) -> np.ndarray:
        """Return which rows of W0 this merge is about, bool (F,): members differ from the center, or momentum moves it.

        A row that a member merely catches up on gets no new motion, unless the members stay apart from the center.
        """
        touched = (self.table.touched[members] != 0).any(axis=0)
        behind = self._behind[members].any(axis=0)
        pushed = touched if ends_at_center else touched | behind
        # A merge without momentum does not end the motion that an earlier one began.
        self._moving[pushed] = np.maximum(self._moving[pushed], self.merges + fade_merges)
        return touched | behind | (self._moving >= self.merges)

    def _others(self, members: list[int]) -> list[int]:
        """Return the workers that do not take part, which fall behind where the merge changes the center."""
        return [w for w in range(len(self._behind)) if w not in members]

    def _slices(self, rows: np.ndarray) -> Iterator[tuple[str, slice | np.ndarray]]:
        """Yield (tensor, rows) of each slice."""
        for name, shape in self.layout.shapes.items():
            n, step = shape[0], max(self.slice_floats // (shape[1] if len(shape) == 2 else 1), 1)
            if name == self._input and len(rows) < n:
                for at in range(0, len(rows), step):
                    yield name, rows[at : at + step]
            else:
                for at in range(0, n, step):
                    yield name, slice(at, min(at + step, n))

    def _apply(self, rule: MergeRule, members: list[int], name: str, rows: slice | np.ndarray) -> int:
        """Apply the rule to one slice, rows in an array gathered and written back; return the floats of its vectors."""
        taken: list[tuple[np.ndarray, np.ndarray]] = []
        states: dict[tuple[str, int | None], np.ndarray] = {}

        def view(flat: np.ndarray) -> np.ndarray:
            tensor = self._tensor(flat, name)
            found = tensor[rows]
            if not isinstance(rows, slice):
                taken.append((tensor, found))
            return found

        def state(name: str, worker: int | None = None) -> np.ndarray:
            # Gathered once: of two copies of a state's rows, the one written back last would undo the other.
            key = name, worker
            if key not in states:
                states[key] = view(self._state_of(key))
            return states[key]

        def clear(name: str) -> None:
            if (name, None) in self._state:
                state(name)[:] = 0

        replicas, touched = {w: view(self._vector(w)) for w in members}, self._touched(members, name, rows)
        params = ParameterSlice(name, view(self._vector(None)), replicas, touched, state, clear)
        changed = self._changed if name == self._input else None
        before = None if changed is None else params.center.copy()
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # the loss tells of a diverged run
            rule(params)
        if changed is not None:
            changed[rows] = (params.center != before).any(axis=1)
        for tensor, found in taken:
            tensor[rows] = found
        return (1 + len(members) + len(states)) * params.center.size

    def _tensor(self, flat: np.ndarray, name: str) -> np.ndarray:
        """Return a tensor of a flat vector as (rows, width)."""
        start, shape = self._places[name]
        return flat[start : start + shape[0] * shape[1]].reshape(shape)

    def _touched(self, members: list[int], name: str, rows: slice | np.ndarray) -> np.ndarray | None:
        """Return who has touched the rows of a slice, or None where a row is not that of a feature."""
        return self.table.touched[members][:, rows] != 0 if name == self._input else None

    def _state_of(self, key: tuple[str, int | None]) -> np.ndarray:
        """Return the vector of a merge state, float32 (n_params,)."""
        with self._lock:
            if key not in self._state:
                self._state[key] = self._zeros()
            return self._state[key]

    def _vector(self, worker: int | None) -> np.ndarray:
        """Return the replica of a worker, the center for None."""
        return self.table.params[0 if worker is None else 1 + worker]

    def _zeros(self) -> np.ndarray:
        """Return the vector of a new merge state."""
        return np.zeros(self.layout.size, np.float32)
