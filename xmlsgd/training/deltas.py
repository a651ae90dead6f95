"""Workers that train copies of the shared model: pull a copy, train it, push the difference.

Pushing the copy itself would undo what other workers wrote meanwhile. Of the input layer, only the rows that a span
touches are copied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..devices.cpu import CPU
from ..devices.cpu.kernels.copying import pull_rows, push
from ..nn.parameters import Layout
from .shared_parameters import SharedParameters, WorkerArrays

# Vectors that are read or written, to count memory traffic.
PULLED = 3  # read the center; write copy and base
PUSHED = 4  # read copy, base and center; write the center
COPIED = 2  # a push where nobody else wrote: read the copy; write the center


class Deltas:
    """Pulls and pushes of the workers that train a copy of the center.

    A worker's `arrays` name its copy and its base, which is what the copy was when it was pulled. Creating the object
    compiles the kernels.

    Parameters
    ----------
    shared : SharedParameters
        Center, copies and bases.
    layout : Layout
        Layout of the parameters, W0 first.
    arrays : sequence of WorkerArrays
        Arrays of each worker; workers without a base write the center itself.
    n_threads : int, default=1
        Threads that copy and add.
    in_place : collection of int
        Workers that write the center itself, possibly between a pull and a push of another worker.
    """

    def __init__(
        self,
        shared: SharedParameters,
        layout: Layout,
        arrays: Sequence[WorkerArrays],
        n_threads: int = 1,
        in_place: Collection[int] = (),
    ) -> None:
        self._params, self._arrays, self._in_place, self._device = shared.params, arrays, in_place, CPU(n_threads)
        n_features, self._width = layout.shapes[next(iter(layout.shapes))]
        self._dense = n_features * self._width  # start of the parameters behind W0, which every span changes
        self._features: dict[int, np.ndarray] = {}  # worker -> the features whose rows it pulled
        self._pushes = 0  # number of pushes so far
        self._pushes_at_pull: dict[int, int] = {}  # worker -> `_pushes` when it pulled
        # Worker -> `_pushes` after its last push. A push also updates the worker's copy behind W0, so that the next
        # pull copies these parameters only if another worker has pushed in between.
        self._pushes_at_push: dict[int, int] = {}
        vectors, nothing = [self._params[0]] * 3, np.empty(0, np.int32)
        self._device.run(pull_rows, *vectors, nothing, self._width, n_threads)
        end = self._params.shape[1]
        self._device.run(push, *vectors, nothing, self._width, end, True, n_threads)

    def pull(self, w: int, features: np.ndarray) -> int:
        """Copy the center to worker `w`; return the number of floats read and written.

        Of W0, copy only the rows `features`, int32, ascending and unique.
        """
        center, copy, base = self._vectors(w)
        if self._pushes_at_push.pop(w, None) != self._pushes or self._others_write(w):
            copy[self._dense :] = base[self._dense :] = center[self._dense :]
        device = self._device
        device.run(pull_rows, center, copy, base, features, self._width, device.n_threads)
        self._features[w], self._pushes_at_pull[w] = features, self._pushes
        return PULLED * self._floats(features)

    def push(self, w: int) -> int:
        """Add to the center what worker `w` changed; return the number of floats read and written.

        If nobody else has written the center since the pull, it becomes the copy, to the bit.
        """
        features = self._features.pop(w)
        alone = self._pushes_at_pull.pop(w) == self._pushes and not self._others_write(w)
        device, self._pushes = self._device, self._pushes + 1
        device.run(push, *self._vectors(w), features, self._width, self._dense, alone, device.n_threads)
        self._pushes_at_push[w] = self._pushes
        return (COPIED if alone else PUSHED) * self._floats(features)

    def drop(self, w: int) -> None:
        """Forget what worker `w` pulled."""
        self._features.pop(w, None)
        self._pushes_at_pull.pop(w, None)

    def _others_write(self, w: int) -> bool:
        """Return whether workers other than `w` write the center in place, which `_pushes` does not count."""
        return bool(self._in_place) and w not in self._in_place

    def _vectors(self, w: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the center, the copy of worker `w` and its base."""
        copy, base = self._arrays[w].params, self._arrays[w].base
        assert base is not None
        return self._params[0], self._params[copy], self._params[base]

    def _floats(self, features: np.ndarray) -> int:
        """Return how many floats of one vector a pull or push of these features covers."""
        return self._params.shape[1] - self._dense + len(features) * self._width
