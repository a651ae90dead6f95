"""The folder of a run: the files that its processes share, in memory where there is room, gone when the run is.

A folder belongs to whoever holds the lock on its file `lock`. The system frees the lock of a process that is killed, so
that the next run finds and removes what that one left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import warnings
from pathlib import Path

MEMORY = Path("/dev/shm")
SPARE = 64 << 20  # bytes of shared memory left to others


class RunFolder:
    """A folder of its own for `n_bytes`, open to its user alone."""

    def __init__(self, n_bytes: int) -> None:
        prefix = f"xmlsgd-{os.getuid()}-"
        root = MEMORY if _room(MEMORY) >= n_bytes + SPARE else Path(tempfile.gettempdir())
        if root != MEMORY and MEMORY.is_dir():
            warnings.warn(
                f"{n_bytes / 1e9:.2f} GB do not fit into {MEMORY}; the shared model lies in {root}, on a disk",
                RuntimeWarning,
                stacklevel=4,
            )
        _remove_abandoned(root, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        self._lock = (self.path / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the folder; what is mapped stays readable."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _room(folder: Path) -> int:
    """Return the free bytes of a folder's file system, -1 where there is no such folder."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return -1
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _remove_abandoned(root: Path, prefix: str) -> None:
    """Remove the folders of this user whose owners are gone."""
    for folder in root.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), (folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
