"""Merge replicas: apply the merge rule of an algorithm to one parameter slice after another.

The rules are in `algorithms`: `merge_replicas` of each algorithm, `combiners.py` and `outer.py`.

Several threads merge slices. Of the input layer, only those rows take part in which a member differs from the center,
or which the momentum of an outer optimizer still moves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np

from ..errors import DataError
from ..nn.parameters import Layout
from .shared_parameters import SharedParameters

# Floats of a slice: 1 MB a vector. Smaller slices would fit the level-2 cache, but threads wait for the interpreter at
# each operation on a slice. With 1 << 16 two threads merged two replicas in 36 ms and one thread in 24; with this, two
# threads in 19 ms and one in 20.
SLICE = 1 << 18
DENSE_SHARE = 0.5  # of the input rows: beyond it, gathering rows costs more than merging all of them


@dataclass(eq=False)
class ParameterSlice:
    """Some rows of one tensor during a merge. Arrays are float32 (rows, width) and written in place.

    Attributes
    ----------
    name : str
        Name of the tensor.
    center : ndarray
        The shared model.
    replicas : dict of int to ndarray
        The replicas of the members, by worker.
    touched : ndarray of bool (members, rows), or None
        Which members have trained on these rows of W0 since their last merge, a NumPy array also on a GPU; None for
        other tensors.
    state : callable
        ``state(name, worker=None)`` returns these rows of a merge state, a vector that the rule keeps between merges;
        zeros at first. The merge states of a worker are dropped when it leaves.
    clear : callable
        ``clear(name)`` sets a merge state to zeros if it exists.
    """

    name: str
    center: np.ndarray
    replicas: dict[int, np.ndarray]
    touched: np.ndarray | None
    state: Callable[..., np.ndarray]
    clear: Callable[[str], None] = lambda name: None

    def weighted_sum(self, weights: Mapping[int, float]) -> np.ndarray:
        """Return the sum of weights[w] times replica w as a new array, added up in the order of the members."""
        (w, replica), *others = self.replicas.items()
        total = np.float32(weights[w]) * replica
        for w, replica in others:
            total += np.float32(weights[w]) * replica
        return total

    def broadcast(self) -> None:
        """Copy the center to the members."""
        for replica in self.replicas.values():
            replica[:] = self.center


class MergeRule(NamedTuple):
    """What a merge does: `apply` writes the center and the replicas of a slice.

    fade_merges : number of further merges in which momentum moves a row that no worker touches. ends_at_center :
    whether the rule leaves the replicas of the members equal to the center.
    """

    apply: Callable[[ParameterSlice], None]
    fade_merges: int = 0
    ends_at_center: bool = True


BROADCAST = MergeRule(ParameterSlice.broadcast)


class Comm(Protocol):
    """The interface through which algorithms merge replicas; executors implement it."""

    def merge(self, rule: MergeRule, members: Collection[int]) -> None:
        """Apply `rule` to every slice of the center and of the replicas of `members` (`Merger.run`)."""

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state, that of a worker if one is given, to a copy of the center."""

    def norm(self, worker: int) -> float:
        """Return the Euclidean norm of a replica divided by its number of parameters."""

    def now(self) -> float:
        """Return the seconds of the run so far."""


class Merger:
    """Applies merge rules to shared parameters of this `layout`, W0 first."""

    on_device = False  # whether replicas are merged in the memory of their device
    slice_floats = SLICE

    def __init__(self, shared: SharedParameters, layout: Layout, n_threads: int) -> None:
        self.shared, self.layout = shared, layout
        self._input = next(iter(layout.shapes))
        offsets = layout.offsets
        # Of each tensor, where it begins and its shape as (rows, width).
        self._matrices = {name: (offsets[name], (shape[0], prod(shape[1:]))) for name, shape in layout.shapes.items()}
        self._n_features = layout.shapes[self._input][0]
        n_workers = len(shared.params) - 1
        # Rows of W0 in which a worker may differ from the center although it has not touched them since its last merge.
        self._behind = np.zeros((n_workers, self._n_features), bool)
        self._moving = np.zeros(self._n_features, np.int64)  # by row of W0, the last merge in which momentum moves it
        self._changed: np.ndarray | None = None  # rows of W0 that a merge changes in the center; None if all take part
        self._state: dict[tuple[str, int | None], np.ndarray] = {}
        # Threads are kept from merge to merge, because each keeps the memory of its temporary arrays.
        self._pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None
        self._lock = Lock()  # so that only one of the threads creates a merge state
        self.merges = 0

    def run(self, rule: MergeRule, members: Collection[int]) -> int:
        """Apply `rule` to every slice of the center and the replicas of `members`.

        Return the number of floats of the center, the replicas and the merge states that the rule has used.
        """
        members = sorted(members)
        self.merges += 1
        active = self._active(rule, members)
        rows = np.flatnonzero(active)
        if len(rows) > DENSE_SHARE * self._n_features:
            rows = np.arange(self._n_features)
        others = self._others(members)
        self._changed = np.zeros(self._n_features, bool) if others else None
        each = map if self._pool is None else self._pool.map
        floats = sum(each(lambda place: self._apply(rule, members, *place), list(self._slices(rows))))
        if self._changed is not None:
            self._behind[others] |= self._changed
        self._behind[members] = False if rule.ends_at_center else active
        self.shared.touched[members] = 0
        return floats

    def copy_center(self, worker: int) -> None:
        """Make the replica of `worker` a copy of the center, and drop its merge states."""
        self.shared.params[1 + worker] = self.shared.params[0]
        self.shared.touched[worker] = 0
        self._behind[worker] = False
        for key in [key for key in self._state if key[1] == worker]:
            del self._state[key]

    def save_center(self, name: str, worker: int | None = None) -> None:
        """Set a merge state, that of a worker if one is given, to a copy of the whole center."""
        self._state[name, worker] = self._vector(None).copy()

    def fetch_center(self) -> None:
        """Do nothing: merges write the shared parameters themselves."""

    def clear_states(self) -> None:
        """Clear the merge states, so that no momentum is left."""
        self._moving[:] = 0
        self._state.clear()

    def reset(self) -> None:
        """Clear merge states and marks: the center and all replicas were set to one model."""
        self.shared.touched[:] = 0
        self._behind[:] = False
        self.clear_states()

    def _active(self, rule: MergeRule, members: list[int]) -> np.ndarray:
        """Return the rows of W0 that take part, bool (F,): a member differs from the center, or momentum moves them.

        A row in which members only catch up with the center gets no new momentum, unless the rule leaves them apart.
        """
        touched = (self.shared.touched[members] != 0).any(axis=0)
        behind = self._behind[members].any(axis=0)
        pushed = touched if rule.ends_at_center else touched | behind
        # The maximum, so that a merge without momentum does not end the motion that an earlier one began.
        self._moving[pushed] = np.maximum(self._moving[pushed], self.merges + rule.fade_merges)
        return touched | behind | (self._moving >= self.merges)

    def _others(self, members: list[int]) -> list[int]:
        """Return the workers that do not take part; they fall behind in the rows that the merge changes."""
        return [w for w in range(len(self._behind)) if w not in members]

    def _slices(self, rows: np.ndarray) -> Iterator[tuple[str, slice | np.ndarray]]:
        """Yield (tensor, rows) of each slice."""
        for name, (_, (n, width)) in self._matrices.items():
            step = max(self.slice_floats // width, 1)
            if name == self._input and len(rows) < n:
                for at in range(0, len(rows), step):
                    yield name, rows[at : at + step]
            else:
                for at in range(0, n, step):
                    yield name, slice(at, min(at + step, n))

    def _apply(self, rule: MergeRule, members: list[int], name: str, rows: slice | np.ndarray) -> int:
        """Apply the rule to one slice; return the number of floats of its vectors.

        Rows given as an array are gathered before and written back after.
        """
        taken: list[tuple[np.ndarray, np.ndarray]] = []  # (tensor, copies of its rows)
        states: dict[tuple[str, int | None], np.ndarray] = {}

        def view(flat: np.ndarray) -> np.ndarray:
            tensor = self._tensor(flat, name)
            found = tensor[rows]
            if not isinstance(rows, slice):
                taken.append((tensor, found))
            return found

        def state(name: str, worker: int | None = None) -> np.ndarray:
            # Gathered only once: of two copies of the same rows, the one written back last would undo the other.
            key = name, worker
            if key not in states:
                states[key] = view(self._state_of(key))
            return states[key]

        def clear(name: str) -> None:
            if (name, None) in self._state:
                state(name)[:] = 0

        replicas, touched = {w: view(self._vector(w)) for w in members}, self._touched(members, name, rows)
        center = view(self._vector(None))
        params = ParameterSlice(name, center, replicas.copy(), touched, state, clear)
        changed = self._changed if name == self._input else None
        before = None if changed is None else center.copy()
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a diverged run shows in the loss
            rule.apply(params)
        if params.center is not center or any(params.replicas.get(w) is not replicas[w] for w in members):
            text = "a merge rule must write into params.center and params.replicas[w], as by params.center[:] = ..."
            raise DataError(f"{text}, got other arrays in their place")
        if changed is not None:
            changed[rows] = (center != before).any(axis=1)
        for tensor, found in taken:
            tensor[rows] = found
        return (1 + len(members) + len(states)) * center.size

    def _tensor(self, flat: np.ndarray, name: str) -> np.ndarray:
        """Return a tensor of a flat vector as (rows, width)."""
        start, shape = self._matrices[name]
        return flat[start : start + shape[0] * shape[1]].reshape(shape)

    def _touched(self, members: list[int], name: str, rows: slice | np.ndarray) -> np.ndarray | None:
        """Return which members have touched the rows of a slice of W0, bool (members, rows); None for other tensors."""
        return self.shared.touched[:, rows][members] != 0 if name == self._input else None

    def _state_of(self, key: tuple[str, int | None]) -> np.ndarray:
        """Return the vector of a merge state, float32 (n_params,), which is created if need be."""
        with self._lock:
            if key not in self._state:
                self._state[key] = self._zeros()
            return self._state[key]

    def _vector(self, worker: int | None) -> np.ndarray:
        """Return the replica of a worker, the center for None."""
        return self.shared.params[0 if worker is None else 1 + worker]

    def _zeros(self) -> np.ndarray:
        """Return the vector of a new merge state."""
        return np.zeros(self.layout.size, np.float32)
