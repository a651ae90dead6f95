"""Steps on copies of a shared model: pull the model, step on the copy, push the difference, never the copy.

Pushing the copy would undo what others wrote meanwhile. Of the input layer only the rows that a span touches travel.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .merging import SLICE
from .params import Layout
from .table import Table

# Vectors read and written: center, copy, base; copy, base, center twice; copy, center.
PULLED, PUSHED, COPIED = 3, 4, 2


class Deltas:
    """Copies of the center of `table`: row 1 + w is worker w's copy, row 1 + n + w what it was when it was pulled."""

    def __init__(self, table: Table, layout: Layout, n_threads: int = 1) -> None:
        self._params, self._threads = table.params, n_threads
        name = next(iter(layout.shapes))
        self._shape = layout.shapes[name]
        self._dense = self._shape[0] * self._shape[1]  # where what every step changes begins
        self._n_workers = (len(table.params) - 1) // 2
        self._features: dict[int, np.ndarray] = {}
        self._read: dict[int, int] = {}
        self._pushes = 0

    def pull(self, w: int, features: np.ndarray) -> int:
        """Copy the center to worker `w`, of W0 only the rows `features`, ascending and each once.

        Return the floats read and written.
        """
        center, copy, base = self._vectors(w)

        def dense(part: slice) -> None:
            copy[part] = center[part]
            base[part] = center[part]

        self._each_slice(dense)
        rows = self._rows(center)[features]
        self._rows(copy)[features] = rows
        self._rows(base)[features] = rows
        self._features[w], self._read[w] = features, self._pushes
        return PULLED * self._floats(features)

    def push(self, w: int, weight: float) -> int:
        """Add `weight` times what worker `w` changed to the center; to the bit its copy when nothing else changed.

        Return the floats read and written.
        """
        features = self._features.pop(w)
        alone = self._read.pop(w) == self._pushes and weight == 1
        if weight == 0:
            return 0
        self._pushes += 1
        center, copy, base = self._vectors(w)
        factor = np.float32(weight)

        def dense(part: slice) -> None:
            if alone:
                center[part] = copy[part]
            else:
                change = copy[part] - base[part]
                change *= factor
                center[part] += change

        self._each_slice(dense)
        rows, copied = self._rows(center), self._rows(copy)[features]
        rows[features] = copied if alone else rows[features] + factor * (copied - self._rows(base)[features])
        return (COPIED if alone else PUSHED) * self._floats(features)

    def drop(self, w: int) -> None:
        """Forget what worker `w` pulled."""
        self._features.pop(w, None)
        self._read.pop(w, None)

    def _vectors(self, w: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the center, the copy of worker `w` and what that was."""
        return self._params[0], self._params[1 + w], self._params[1 + self._n_workers + w]

    def _floats(self, features: np.ndarray) -> int:
        """Return the floats of a vector that travel."""
        return self._params.shape[1] - self._dense + len(features) * self._shape[1]

    def _rows(self, flat: np.ndarray) -> np.ndarray:
        """Return W0 of a flat vector."""
        return flat[: self._dense].reshape(self._shape)

    def _each_slice(self, work: Callable[[slice], None]) -> None:
        """Do `work` on every slice of the parameters after W0."""
        size = self._params.shape[1]
        slices = [slice(at, min(at + SLICE, size)) for at in range(self._dense, size, SLICE)]
        if self._threads == 1:
            for part in slices:
                work(part)
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                list(pool.map(work, slices))
