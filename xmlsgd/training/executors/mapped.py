"""The data of a job as files that every worker maps: nothing is copied for a worker, nothing goes through a pipe."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...data.csr import CSR, Dataset
from ...data.files import naming
from ...errors import DataError
from ..learner import Job


@dataclass(frozen=True)
class ArrayFile:
    """An array in a file: dtype, shape, where in bytes it begins, and which file it is (`_identity`)."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    identity: tuple[int, int, int]

    @classmethod
    def of(cls, array: np.ndarray, path: Path) -> ArrayFile:
        """Return where a memory-mapped array lies; any other is written to `path` first."""
        array = np.ascontiguousarray(array)
        base = array
        while base is not None and not (isinstance(base, np.memmap) and not isinstance(base.base, np.ndarray)):
            base = base.base if isinstance(base, np.ndarray) else None
        if base is None or not _is_its_file(base):
            with naming(path), path.open("wb") as stream:
                stream.write(array.reshape(-1).view(np.uint8).data)  # says which error it met, unlike `tofile`
            return cls(str(path), array.dtype.str, array.shape, 0, _identity(path))
        begin, file = base.offset + address(array) - address(base), str(base.filename)
        return cls(file, array.dtype.str, array.shape, begin, _identity(file))

    def open(self) -> np.ndarray:
        """Map the array, read-only; `DataError` where the file is another one by now."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        if not os.path.exists(self.path) or _identity(self.path) != self.identity:
            raise DataError(f"{self.path}: must stay as it is during training, but was removed or replaced")
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


def _identity(path: str | Path) -> tuple[int, int, int]:
    """Return what tells a file from another that takes its name: number, bytes, time of the last change."""
    state = os.stat(path)
    return state.st_ino, state.st_size, state.st_mtime_ns


def _is_its_file(mapped: np.memmap) -> bool:
    """Return whether who maps the file of that name finds what `mapped` has.

    Not so where the file was removed or replaced since, or where `mapped` holds changes of its own (mode "c").
    """
    if mapped.filename is None or mapped.mode == "c":
        return False
    at = address(mapped)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= at < last:
            return name == os.path.realpath(mapped.filename)  # the system adds " (deleted)" to one that is gone
    return False


def address(array: np.ndarray) -> int:
    """Return where in memory an array begins."""
    return int(array.__array_interface__["data"][0])


@dataclass(frozen=True)
class MappedJob:
    """A job whose arrays are files. `job` is the same without data; of its start only the numbers are left."""

    job: Job
    arrays: dict[str, ArrayFile]
    n_features: int
    n_labels: int

    @classmethod
    def of(cls, job: Job, folder: Path) -> MappedJob:
        """Write what of the job's data is not in files yet into `folder`."""
        X, Y = job.dataset.X, job.dataset.Y
        arrays = {f"X_{name}": getattr(X, name) for name in ("indptr", "indices", "data")}
        arrays |= {f"Y_{name}": getattr(Y, name) for name in ("indptr", "indices", "data")}
        if job.sample_weight is not None:
            arrays["weight"] = job.sample_weight
        files = {name: ArrayFile.of(array, folder / name) for name, array in arrays.items()}
        none = np.empty(0, np.float32)
        start = None if job.start is None else replace(job.start, params=none, state=none)
        bare = replace(job, dataset=None, sample_weight=None, start=start)  # type: ignore[arg-type]
        return cls(bare, files, X.n_cols, Y.n_cols)

    def open(self) -> Job:
        """Return the job over mapped data."""
        arrays = {name: file.open() for name, file in self.arrays.items()}
        X = CSR(arrays["X_indptr"], arrays["X_indices"], arrays["X_data"], self.n_features)
        Y = CSR(arrays["Y_indptr"], arrays["Y_indices"], arrays["Y_data"], self.n_labels)
        return replace(self.job, dataset=Dataset(X, Y), sample_weight=arrays.get("weight"))
