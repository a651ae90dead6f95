"""Steps on copies of a shared model: pull the model, step on the copy, push the difference, never the copy.

Pushing the copy would undo what others wrote meanwhile. Of the input layer only the rows that a span touches travel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..devices.cpu import CPU
from ..devices.cpu.kernels.copying import pull_rows, push
from ..nn.parameters import Layout
from .shared_parameters import Table, WorkerArrays

# Vectors that a pull and a push read and write: center, copy, base; copy, base, center twice; copy, center.
PULLED, PUSHED, COPIED = 3, 4, 2


class Deltas:
    """Copies of the center of `table` of the workers whose `arrays` have a base: what the copy was when it was pulled.

    in_place : workers that write the center itself, at any time between a pull and a push of the others.

    Kernels of `n_threads` threads copy and add; they are compiled when this is made.
    """

    def __init__(
        self,
        table: Table,
        layout: Layout,
        arrays: Sequence[WorkerArrays],
        n_threads: int = 1,
        in_place: Collection[int] = (),
    ) -> None:
        self._params, self._arrays, self._in_place, self._device = table.params, arrays, in_place, CPU(n_threads)
        n_features, self._width = layout.shapes[next(iter(layout.shapes))]
        self._dense = n_features * self._width  # where what every step changes begins
        self._features: dict[int, np.ndarray] = {}
        self._read: dict[int, int] = {}
        self._pulled_by: dict[int, int] = {}  # worker -> its last push, which was a pull of what is behind W0 as well
        self._pushes = 0
        vectors, nothing = [self._params[0]] * 3, np.empty(0, np.int32)
        self._device.run(pull_rows, *vectors, nothing, self._width, n_threads)
        end = self._params.shape[1]
        self._device.run(push, *vectors, nothing, self._width, end, True, n_threads)

    def pull(self, w: int, features: np.ndarray) -> int:
        """Copy the center to worker `w`, of W0 only the rows `features`, int32, ascending and each once.

        Return the floats read and written.
        """
        center, copy, base = self._vectors(w)
        if self._pulled_by.pop(w, None) != self._pushes or self._others_write(w):
            copy[self._dense :] = base[self._dense :] = center[self._dense :]
        device = self._device
        device.run(pull_rows, center, copy, base, features, self._width, device.n_threads)
        self._features[w], self._read[w] = features, self._pushes
        return PULLED * self._floats(features)

    def push(self, w: int) -> int:
        """Add what worker `w` changed to the center; make it the copy, to the bit, when nothing else changed.

        Return the floats read and written.
        """
        features = self._features.pop(w)
        alone = self._read.pop(w) == self._pushes and not self._others_write(w)
        device, self._pushes = self._device, self._pushes + 1
        device.run(push, *self._vectors(w), features, self._width, self._dense, alone, device.n_threads)
        self._pulled_by[w] = self._pushes
        return (COPIED if alone else PUSHED) * self._floats(features)

    def drop(self, w: int) -> None:
        """Forget what worker `w` pulled."""
        self._features.pop(w, None)
        self._read.pop(w, None)

    def _others_write(self, w: int) -> bool:
        """Return whether others may have changed the center without a push that is counted here."""
        return bool(self._in_place) and w not in self._in_place

    def _vectors(self, w: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the center, the copy of worker `w` and what that was."""
        copy, base = self._arrays[w].params, self._arrays[w].base
        assert base is not None
        return self._params[0], self._params[copy], self._params[base]

    def _floats(self, features: np.ndarray) -> int:
        """Return the floats of a vector that travel."""
        return self._params.shape[1] - self._dense + len(features) * self._width
