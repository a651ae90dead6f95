"""The folder of a run: the files that its processes share, in memory where there is room, gone when the run is.

A folder belongs to whoever holds its lock. The system frees the lock of a process that is killed, so that its
workers, or the next run, find and remove what it left behind.
"""

from __future__ import annotations

import errno
import os
import tempfile
import warnings
from contextlib import AbstractContextManager
from pathlib import Path

from ...data.files import lock_folder, make_locked, naming, remove_locked

MEMORY = Path("/dev/shm")
SPARE = 64 << 20  # bytes of shared memory left to others


class RunFolder:
    """A folder of its own for `n_bytes`, open to its user alone; `OSError` where there is no room."""

    def __init__(self, n_bytes: int) -> None:
        disk, prefix = Path(tempfile.gettempdir()), f"xmlsgd-run-{os.getuid()}-"
        for root in (MEMORY, disk):  # both, for what lies abandoned in one may be why there is no room in it
            _remove_all_abandoned(root, prefix)
        root = MEMORY if _room(MEMORY) >= n_bytes + SPARE else disk
        if _room(root) < n_bytes:
            needed, free = (f"{size / 1e6:,.1f} MB" for size in (n_bytes, _room(root)))
            text = f"{needed} are needed for what the workers share, {free} are free; make room, take fewer workers, or"
            raise OSError(errno.ENOSPC, f"{text} let TMPDIR name another disk", str(root))
        if root != MEMORY and MEMORY.is_dir():
            warnings.warn(
                f"{n_bytes / 1e6:,.1f} MB, and {SPARE >> 20} for others, do not fit into {MEMORY}; the shared model "
                f"lies in {root}, on a disk",
                stacklevel=4,
            )
        self.path, self._lock = make_locked(lambda: Path(tempfile.mkdtemp(prefix=prefix, dir=root)))

    def naming(self) -> AbstractContextManager[None]:
        """Return the context of writing files of the folder, in which an error about a full disk names what is full."""
        return naming(self.path.parent, self.path)

    def close(self) -> None:
        """Remove the folder; what is mapped stays readable."""
        remove_locked(self.path, self._lock)
        self._lock = None


def _room(folder: Path) -> int:
    """Return the free bytes of a folder's file system, -1 where there is no such folder."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return -1
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _remove_all_abandoned(root: Path, prefix: str) -> None:
    """Remove the folders of this user whose owners are gone."""
    for folder in root.glob(f"{prefix}*"):
        remove_abandoned(folder)


def remove_abandoned(folder: Path) -> None:
    """Remove a folder whose owner is gone; that of a living run stays."""
    try:
        lock = lock_folder(folder)
    except OSError:
        return  # of a living run, or gone
    if lock is not None:
        remove_locked(folder, lock)
