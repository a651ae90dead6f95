"""Arrays of saved models, checked for type and shape: a model may come from anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...errors import ModelFileError

BLOCK = 1 << 22  # numbers looked at together, so that what this takes stays small beside an array


@dataclass(frozen=True)
class ModelArrays:
    """The arrays of the folder `path` by name; `prefix` is put before names, `shown` also in messages.

    check : whether numbers are looked at, as `finite` does, which reads all of them.
    """

    arrays: dict[str, np.ndarray]
    path: Path
    check: bool = True
    prefix: str = ""
    shown: str = ""

    def part(self, prefix: str) -> ModelArrays:
        """Return the arrays whose names begin with `prefix`, by the rest of their names."""
        size = len(prefix)
        of_part = {name[size:]: array for name, array in self.arrays.items() if name.startswith(prefix)}
        return replace(self, arrays=of_part, shown=self.shown + prefix)

    def array(self, name: str, kind: type, *shape: int | None) -> np.ndarray:
        """Return an array of this type and shape, in which None is any length; `ModelFileError` where there is none."""
        found = self.arrays.get(self.prefix + name)
        if found is None or found.dtype != kind or not _is_of(found.shape, shape):
            got = "none" if found is None else f"{found.dtype} {found.shape}"
            wanted = str(tuple("n" if length is None else length for length in shape)).replace("'", "")
            raise ModelFileError(
                f"{self.path}: {self.shown}{self.prefix}{name} must be {np.dtype(kind)} {wanted}, got {got}"
            )
        return found

    def finite(self, name: str, *shape: int | None) -> np.ndarray:
        """Return an array of float32 numbers, none of them NaN or infinite."""
        found = self.array(name, np.float32, *shape)
        flat = found.reshape(-1)
        if self.check and not all(np.isfinite(flat[at : at + BLOCK]).all() for at in range(0, len(flat), BLOCK)):
            raise ModelFileError(f"{self.path}: {self.shown}{self.prefix}{name} must be finite")
        return found


def _is_of(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Return whether a shape is as wanted."""
    return len(found) == len(wanted) and all(b is None or a == b for a, b in zip(found, wanted, strict=True))
