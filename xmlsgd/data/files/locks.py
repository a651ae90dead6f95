"""Locks of temporary folders: a folder whose lock is free was left behind by a process that died."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows, where temporary folders of processes that died stay until somebody removes them
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable

OTHERS = 0o077  # permissions of everybody but the owner


def make_locked(make: Callable[[], Path]) -> tuple[Path, int | None]:
    """Make a folder and lock it; the lock is None where the system or the disk has none.

    make : creates a new folder that only its owner may enter (mode 0o700), and returns its path.
    """
    while True:
        folder = make()
        try:
            return folder, lock_folder(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process removed it before the lock was taken
        except OSError:
            return folder, None


def lock_folder(folder: Path) -> int | None:
    """Return a descriptor that holds the lock of a folder, None on systems without locks.

    Raise `OSError` where another process holds the lock, the folder is gone, or `folder` is not a folder that this user
    made by `make_locked`. Anybody may put a symbolic link or a folder of theirs under such a name in a shared folder,
    so a link is never followed, and the folder must belong to this user and be closed to everybody else.
    """
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        state = os.fstat(descriptor)
        if state.st_uid != os.geteuid() or state.st_mode & OTHERS:
            raise PermissionError(f"{folder}: is not a temporary folder of this user")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(state, os.lstat(folder)):
            raise FileNotFoundError(f"{folder}: was removed before it was locked")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_locked(folder: Path, lock: int | None) -> None:
    """Remove a folder with all that is in it, as far as possible, and release its lock. No link is followed."""
    if lock is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    same = False
    with suppress(OSError):
        _empty(lock)
        same = os.path.samestat(os.fstat(lock), os.lstat(folder))
    os.close(lock)
    if same:
        _remove_with_one_file(folder)


def _empty(descriptor: int) -> None:
    """Remove what is in an open folder, by descriptors: its name may lead elsewhere by now."""
    with suppress(OSError):
        for _, folders, files, level in os.fwalk(".", topdown=False, dir_fd=descriptor):
            for name in files:
                os.unlink(name, dir_fd=level)
            for name in folders:  # a link to a folder is listed here, too
                try:
                    os.rmdir(name, dir_fd=level)
                except NotADirectoryError:
                    os.unlink(name, dir_fd=level)


def _remove_with_one_file(folder: Path) -> None:
    """Remove a folder where hardly a file can be opened any more: `os.fwalk` opens one for each level."""
    for above, folders, files in os.walk(folder, topdown=False):
        for name in files:
            with suppress(OSError):
                os.unlink(os.path.join(above, name))
        for name in folders:
            with suppress(OSError):
                os.rmdir(os.path.join(above, name))
    with suppress(OSError):
        os.rmdir(folder)
