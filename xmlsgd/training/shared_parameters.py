"""The table: the shared model, the replicas, the optimizer states and the marks of touched rows, in one memory.

In one process it is ordinary memory; for several it is a file that all of them map.

Workers that write the shared model in place share its optimizer state, on purpose without locks. A worker that pushes
differences has a state of its own: a copy of a shared one would undo what others wrote to it meanwhile, and the state
of a worker that dies in the middle of a step is dropped with its copy of the model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..nn.parameters import padded, zeros
from .messages import Sharing


class Shape(NamedTuple):
    """Sizes of a table: floats of a model and of an optimizer state, how many of each, and marks a worker."""

    model: int
    state: int
    replicas: int
    states: int
    marks: int

    @property
    def floats(self) -> int:
        """Return all floats of the table; marks take a byte each."""
        return (1 + self.replicas) * padded(self.model) + self.states * padded(self.state) + -(-self.marks_bytes // 4)

    @property
    def marks_bytes(self) -> int:
        """Return the bytes of all marks."""
        return self.states * self.marks


class WorkerArrays(NamedTuple):
    """The arrays of a table that a worker trains, as positions in `params`, `states`, `touched`; None for no marks.

    base : position in `params` of what the worker has read, if it steps on a copy of the center.
    """

    params: int
    state: int
    marks: int | None = None
    base: int | None = None


def worker_arrays(sharing: Sequence[Sharing], copies: bool = False) -> list[WorkerArrays]:
    """Return the arrays of each worker, given how it meets the shared model.

    copies : whether workers in place step on copies, too. Either all workers have replicas or none.
    """
    if Sharing.REPLICAS in sharing:
        return [WorkerArrays(1 + w, w, marks=w) for w in range(len(sharing))]
    own = [kind is Sharing.DELTA for kind in sharing]
    n_copies = len(sharing) if copies else sum(own)
    copy, state, arrays = 0, 0 if all(own) else 1, []  # the first state is shared, if any worker writes in place
    for has_own in own:
        if not (copies or has_own):
            arrays.append(WorkerArrays(0, 0))
            continue
        copy += 1
        arrays.append(WorkerArrays(copy, state if has_own else 0, base=copy + n_copies))
        state += has_own
    return arrays


def table_shape(model: int, state: int, marks: int, arrays: Sequence[WorkerArrays]) -> Shape:
    """Return the shape of the table of a run, given floats of a model and of a state, and marks of a worker."""
    replicas = max(worker.params if worker.base is None else worker.base for worker in arrays)
    return Shape(model, state, replicas, 1 + max(worker.state for worker in arrays), marks)


@dataclass(frozen=True, eq=False)
class Table:
    """params float32 (1 + replicas, n_params): row 0 is the center; the others are the replicas or copies of workers.

    states : float32 (states, state size). touched : uint8 (states, marks), which rows of the first layer a
    worker has touched since its last merge.
    """

    params: np.ndarray
    states: np.ndarray
    touched: np.ndarray

    @classmethod
    def over(cls, flat: np.ndarray, shape: Shape) -> Table:
        """Return the table that lies in `flat`, float32 (shape.floats,)."""
        model, state = padded(shape.model), padded(shape.state)
        middle = (1 + shape.replicas) * model
        end = middle + shape.states * state
        params = flat[:middle].reshape(1 + shape.replicas, model)[:, : shape.model]
        states = flat[middle:end].reshape(shape.states, state)[:, : shape.state]
        marks = flat[end:].view(np.uint8)[: shape.marks_bytes].reshape(-1, shape.marks)
        return cls(params, states, marks)

    @classmethod
    def in_memory(cls, shape: Shape) -> Table:
        """Return a table of zeros."""
        return cls.over(zeros(shape.floats), shape)

    @classmethod
    def create(cls, path: Path, shape: Shape) -> Table:
        """Make the file of a table, with all of its room taken; `OSError` when there is not enough."""
        with path.open("xb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, 4 * shape.floats)
            except OSError as error:
                path.unlink()
                needed = f"{4 * shape.floats / 1e6:,.1f} MB are needed for the shared model"
                raise OSError(error.errno, f"{error.strerror}, {needed}", str(path)) from error
        return cls.open(path, shape)

    @classmethod
    def open(cls, path: Path, shape: Shape) -> Table:
        """Map a table that another process made."""
        return cls.over(np.memmap(path, np.float32, "r+", shape=(shape.floats,)).view(np.ndarray), shape)
