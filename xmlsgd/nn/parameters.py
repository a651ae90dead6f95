"""One flat float32 vector for all parameters, with named views.

With it, merging models is one line of vector algebra, a replica is one row of a memory map, and saving is one write.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 16  # floats: 64 bytes, one cache line, so that no two tensors share one


@dataclass(frozen=True)
class Layout:
    """Names, shapes and positions of tensors in a flat vector of `size` float32.

    shapes : shape of each tensor by name, in the order of the vector. Every tensor starts at a multiple of 64 bytes.
    """

    shapes: dict[str, tuple[int, ...]]

    @property
    def offsets(self) -> dict[str, int]:
        """Return where each tensor starts, in floats."""
        sizes = (padded(math.prod(shape)) for shape in self.shapes.values())
        return dict(zip(self.shapes, itertools.accumulate(sizes, initial=0), strict=False))

    @property
    def size(self) -> int:
        """Return the number of floats of the vector, padding included."""
        return sum(padded(math.prod(shape)) for shape in self.shapes.values())

    def views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the tensors as views of `flat`, float32 (size,)."""
        return {
            name: flat[start : start + math.prod(self.shapes[name])].reshape(self.shapes[name])
            for name, start in self.offsets.items()
        }


def padded(floats: int) -> int:
    """Return the next multiple of a cache line, in floats."""
    return -(-floats // ALIGNMENT) * ALIGNMENT


def zeros(size: int) -> np.ndarray:
    """Return float32 zeros (size,) that start on a cache line; memory is taken when pages are first used."""
    buffer = np.zeros(size + ALIGNMENT, np.float32)
    skip = -buffer.ctypes.data % (4 * ALIGNMENT) // 4
    return buffer[skip : skip + size]


def is_finite(flat: np.ndarray) -> bool:
    """Return whether no parameter is NaN or infinite, by their sum."""
    with np.errstate(all="ignore"):  # a sum in float64 takes twice as long, but does not overflow
        return bool(np.isfinite(flat.sum()) or np.isfinite(flat.sum(dtype=np.float64)))
