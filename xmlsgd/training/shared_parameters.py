"""Shared parameters: center, replicas, optimizer states and marks of touched rows in one block of memory.

Within one process it is ordinary memory; several processes map a file.

Workers that write the shared model in place share its optimizer state, on purpose without locks. A worker that pushes
differences has an optimizer state of its own: writing back a copy of a shared state would undo what others wrote
meanwhile, and if the worker dies in the middle of a span, its state is dropped with its copy of the model.
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


class SharedShape(NamedTuple):
    """Sizes of the shared parameters.

    model, state : floats of a model and of an optimizer state. replicas, states : number of models besides the center,
    and of optimizer states. marks : marks per optimizer state, one for each row of W0.
    """

    model: int
    state: int
    replicas: int
    states: int
    marks: int

    @property
    def floats(self) -> int:
        """Return the number of all floats; marks take a byte each."""
        return (1 + self.replicas) * padded(self.model) + self.states * padded(self.state) + -(-self.marks_bytes // 4)

    @property
    def marks_bytes(self) -> int:
        """Return the bytes of all marks."""
        return self.states * self.marks


class WorkerArrays(NamedTuple):
    """The shared arrays that a worker trains.

    params, state, touched : numbers of its rows in `params`, `states` and `touched` of `SharedParameters`; `touched` is
    None if touched features are not marked. base : if the worker trains a copy of the center, the row of `params` that
    keeps the copy as it was pulled.
    """

    params: int
    state: int
    touched: int | None = None
    base: int | None = None


def worker_arrays(sharing: Sequence[Sharing], copies: bool = False) -> list[WorkerArrays]:
    """Return the arrays of each worker, given how it uses the shared model. Either all have replicas or none.

    copies : whether workers that write in place train copies, too, as on a simulated clock.
    """
    if Sharing.REPLICAS in sharing:
        return [WorkerArrays(1 + w, w, touched=w) for w in range(len(sharing))]
    own = [kind is Sharing.DELTA for kind in sharing]
    n_copies = len(sharing) if copies else sum(own)
    copy, state, arrays = 0, 0 if all(own) else 1, []  # state 0 is shared if any worker writes in place
    for has_own in own:
        if not (copies or has_own):
            arrays.append(WorkerArrays(0, 0))
            continue
        copy += 1
        arrays.append(WorkerArrays(copy, state if has_own else 0, base=copy + n_copies))
        state += has_own
    return arrays


def shared_shape(model: int, state: int, marks: int, arrays: Sequence[WorkerArrays]) -> SharedShape:
    """Return the shape of shared parameters with these arrays; `model`, `state` and `marks` are as in `SharedShape`."""
    replicas = max(worker.params if worker.base is None else worker.base for worker in arrays)
    return SharedShape(model, state, replicas, 1 + max(worker.state for worker in arrays), marks)


@dataclass(frozen=True, eq=False)
class SharedParameters:
    """The parameters and optimizer states that coordinator and workers share.

    Attributes
    ----------
    params : ndarray of shape (1 + replicas, n_params), float32
        Row 0 is the center; the others are replicas, or copies of the center and their bases.
    states : ndarray of shape (states, state size), float32
        Optimizer states.
    touched : ndarray of shape (states, marks), uint8
        Which rows of W0 each worker has touched since its last merge.
    """

    params: np.ndarray
    states: np.ndarray
    touched: np.ndarray

    @classmethod
    def over(cls, flat: np.ndarray, shape: SharedShape) -> SharedParameters:
        """Return views of `flat`, float32 (shape.floats,)."""
        model, state = padded(shape.model), padded(shape.state)
        middle = (1 + shape.replicas) * model
        end = middle + shape.states * state
        params = flat[:middle].reshape(1 + shape.replicas, model)[:, : shape.model]
        states = flat[middle:end].reshape(shape.states, state)[:, : shape.state]
        marks = flat[end:].view(np.uint8)[: shape.marks_bytes].reshape(shape.states, shape.marks)
        return cls(params, states, marks)

    @classmethod
    def in_memory(cls, shape: SharedShape) -> SharedParameters:
        """Return zeros in the memory of this process."""
        return cls.over(zeros(shape.floats), shape)

    @classmethod
    def create(cls, path: Path, shape: SharedShape) -> SharedParameters:
        """Create a file of zeros and map it; raise `OSError` if there is not enough space."""
        with path.open("xb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, 4 * shape.floats)
            except OSError as error:
                path.unlink()
                needed = f"{4 * shape.floats / 1e6:,.1f} MB are needed for the shared model"
                raise OSError(error.errno, f"{error.strerror}, {needed}", str(path)) from error
        return cls.open(path, shape)

    @classmethod
    def open(cls, path: Path, shape: SharedShape) -> SharedParameters:
        """Map the file that `create` wrote."""
        return cls.over(np.memmap(path, np.float32, "r+", shape=(shape.floats,)).view(np.ndarray), shape)
