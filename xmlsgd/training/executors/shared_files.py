"""Files that worker processes share: the folder of a run and the data of its job.

The folder is in memory if there is room. It belongs to the process that holds its lock. The system releases the lock
of a process that is killed, so that its workers, or the next run, can remove the folder. Workers map the data:
nothing is copied for a worker and nothing goes through a pipe.
"""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...data.csr import CSR, Dataset
from ...data.files.system_errors import disk_errors_named
from ...data.files.temporary import create_locked, remove_abandoned, remove_locked
from ...errors import DataError, warn
from ..job import Job

MEMORY = Path("/dev/shm")
SPARE = 64 << 20  # bytes of shared memory left to other programs
PARTS = ("indptr", "indices", "data")


class RunFolder:
    """A new folder for `n_bytes`, private to its user; `OSError` if there is no room."""

    def __init__(self, n_bytes: int) -> None:
        disk, prefix = Path(tempfile.gettempdir()), f"xmlsgd-run-{os.getuid()}-"
        for root in (MEMORY, disk):  # before looking for room, which abandoned folders may take up
            for folder in root.glob(f"{prefix}*"):
                remove_abandoned(folder)
        root = MEMORY if _free_bytes(MEMORY) >= n_bytes + SPARE else disk
        if (free := _free_bytes(root)) < n_bytes:
            raise OSError(
                errno.ENOSPC,
                f"the workers share {n_bytes / 1e6:,.1f} MB, but only {free / 1e6:,.1f} MB are free; free some space, "
                "use fewer workers, or set TMPDIR to a folder on another disk",
                str(root),
            )
        if root != MEMORY and MEMORY.is_dir():
            warn(
                f"{n_bytes / 1e6:,.1f} MB, and {SPARE >> 20} for other programs, do not fit into {MEMORY}; the shared "
                f"model is in {root}, on a disk"
            )
        self._lock: int | None
        self.path, self._lock = create_locked(lambda: root / f"{prefix}{uuid.uuid4().hex[:8]}", root)

    def naming(self) -> AbstractContextManager[None]:
        """Return a context for writing files of the folder, whose errors name the file system that is full."""
        return disk_errors_named(self.path.parent, self.path)

    def close(self) -> None:
        """Remove the folder; mapped files stay readable."""
        if self._lock is not None:
            remove_locked(self.path, self._lock)
            self._lock = None


def _free_bytes(folder: Path) -> int:
    """Return the free bytes of a folder's file system, -1 if there is no such folder."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return -1
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


@dataclass(frozen=True)
class ArrayFile:
    """An array in a file: dtype, shape, offset in bytes, and the `_identity` of the file."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    identity: tuple[int, int, int]

    @classmethod
    def of(cls, array: np.ndarray, path: Path) -> ArrayFile:
        """Return the file of a memory-mapped array; write any other array to `path`."""
        array = np.ascontiguousarray(array)
        base = mapped_base(array)
        if base is None:
            with disk_errors_named(path), path.open("wb") as stream:
                stream.write(array.reshape(-1).view(np.uint8).data)  # unlike `tofile`, reports which error occurred
            return cls(str(path), array.dtype.str, array.shape, 0, _identity(path))
        offset, file = base.offset + _address(array) - _address(base), str(base.filename)
        return cls(file, array.dtype.str, array.shape, offset, _identity(file))

    def open(self) -> np.ndarray:
        """Map the array, read-only; `DataError` if the file has changed."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        if not os.path.exists(self.path) or _identity(self.path) != self.identity:
            raise DataError(f"{self.path}: must not change during training, but was removed or replaced")
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape).view(np.ndarray)


def mapped_base(array: np.ndarray) -> np.memmap | None:
    """Return the memory map that an array is a view of, if its file has the same data; else None."""
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and not isinstance(base.base, np.ndarray):
            return base if _matches_its_file(base) else None
        base = base.base
    return None


def _identity(path: str | Path) -> tuple[int, int, int]:
    """Return inode, size and modification time, which tell a file from another one under its name."""
    state = os.stat(path)
    return state.st_ino, state.st_size, state.st_mtime_ns


def _matches_its_file(mapped: np.memmap) -> bool:
    """Return whether mapping the file of that name gives the same data.

    It does not if the file was removed or replaced, or if `mapped` holds changes of its own (mode "c").
    """
    if mapped.filename is None or mapped.mode == "c":
        return False
    at = _address(mapped)
    with open("/proc/self/maps", "rb") as lines:  # names of files may be of any bytes
        for line in lines:
            span, *_, name = line.removesuffix(b"\n").split(maxsplit=5)
            first, last = (int(end, 16) for end in span.split(b"-"))
            if first <= at < last:
                # The system adds " (deleted)" to a removed file.
                return name == os.fsencode(os.path.realpath(mapped.filename))
    return False


def _address(array: np.ndarray) -> int:
    """Return the address of an array."""
    return int(array.__array_interface__["data"][0])


def data_arrays(job: Job) -> dict[str, np.ndarray]:
    """Return the arrays of a job's rows, labels and weights by name."""
    X, Y = job.dataset.X, job.dataset.Y
    arrays = {f"X_{name}": getattr(X, name) for name in PARTS} | {f"Y_{name}": getattr(Y, name) for name in PARTS}
    return arrays if job.sample_weight is None else arrays | {"weight": job.sample_weight}


@dataclass(frozen=True)
class MappedJob:
    """A job whose arrays are files. `job` is the same without data; its start has no arrays."""

    job: Job
    files: dict[str, ArrayFile]
    n_features: int
    n_labels: int

    @classmethod
    def of(cls, job: Job, folder: Path) -> MappedJob:
        """Write the data of the job that is not yet in files into `folder`."""
        files = {name: ArrayFile.of(array, folder / name) for name, array in data_arrays(job).items()}
        empty = np.empty(0, np.float32)
        start = None if job.start is None else replace(job.start, params=empty, state=empty, origin=None)
        bare = replace(job, dataset=None, sample_weight=None, start=start)  # type: ignore[arg-type]
        return cls(bare, files, job.dataset.X.n_cols, job.dataset.Y.n_cols)

    def open(self) -> Job:
        """Return the job over mapped data."""
        arrays = {name: file.open() for name, file in self.files.items()}
        X = CSR(arrays["X_indptr"], arrays["X_indices"], arrays["X_data"], self.n_features)
        Y = CSR(arrays["Y_indptr"], arrays["Y_indices"], arrays["Y_data"], self.n_labels)
        return replace(self.job, dataset=Dataset(X, Y), sample_weight=arrays.get("weight"))
