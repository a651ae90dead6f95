"""Locks of folders, by which the living tell what the dead left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows, where scratch folders of processes that died stay until somebody removes them
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable


def make_locked(make: Callable[[], Path]) -> tuple[Path, int | None]:
    """Make a folder and lock it; the lock is None where the system or the disk knows none."""
    while True:
        folder = make()
        try:
            return folder, lock_folder(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process swept it away before the lock was taken
        except OSError:
            return folder, None


def lock_folder(folder: Path) -> int | None:
    """Return a descriptor that holds the lock of a folder; raise `OSError` where another has it or it is gone."""
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.stat()  # a lock on what has been removed meanwhile is none
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
