"""Temporary folders, which are removed with the process that made them, or when their name is used again.

A process holds a lock on its temporary folder, `.NAME.1a2b3c4d.partial` beside the path it is for, as long as it lives:
a folder whose lock is free was left behind by a process that died.

In a folder where others may write, too, they can rename all that is in it. So a temporary folder is known by its
permissions, which other users cannot give to a folder of this one, and is written and emptied by its descriptor.
"""

from __future__ import annotations

import fcntl
import glob
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .reading import DISK_FULL, is_of_system

END = ".partial"
# Permissions: its owner's alone, and a sticky bit, which means nothing there and other folders do not have.
MODE = 0o1700
OPEN_FOLDERS = Path("/proc/self/fd")


@contextmanager
def temporary_folder_beside(path: Path, by_descriptor: bool = False) -> Iterator[Path]:
    """Create an empty folder beside `path`; remove it at the end, and those that dead processes left there.

    An error about a full disk without a file name names `path`, and so do system errors about files in the folder.

    by_descriptor : yield a path that leads to the folder in this process alone, whoever renames it.
    """
    remove_leftovers(path)
    temporary, lock = create_locked(lambda: path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{END}"), path)
    opened = OPEN_FOLDERS / str(lock)
    try:
        with disk_errors_named(path, temporary):
            yield opened if by_descriptor and opened.exists() else temporary
    finally:
        remove_locked(temporary, lock)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create an empty folder in the system's folder for temporary files; remove it at the end.

    Those that dead processes left are removed, too. An error about a full disk names the system's folder.
    """
    folder = Path(tempfile.gettempdir())
    with temporary_folder_beside(folder / "xmlsgd") as temporary, disk_errors_named(folder, temporary):
        yield temporary


@contextmanager
def sole_use(path: Path) -> Iterator[bool]:
    """Yield whether nobody else is in this context of `path`; the system lets go of it when the process dies.

    Always true where the system or the disk has no locks.
    """
    remove_leftovers(path)
    reserved = path.with_name(f".{path.name}.{'0' * 8}{END}")
    try:
        folder, lock = create_locked(lambda: reserved, path)
    except FileExistsError:
        yield False
        return
    try:
        _lock(lock, folder)
    except OSError:  # if this process were killed, the folder would stay
        folder.rmdir()
    try:
        yield True
    finally:
        remove_locked(folder, lock)


@contextmanager
def disk_errors_named(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Name `path` in errors about a full disk that name no file, as errors of writing into an open file do not.

    System errors about a file in `temporary`, which will be removed, name `path`, too.
    """
    try:
        yield
    except OSError as error:
        in_temporary = temporary is not None and error.filename is not None and _is_within(error.filename, temporary)
        if (error.errno in DISK_FULL and error.filename is None) or (is_of_system(error) and in_temporary):
            error.filename = str(path)
        raise


def _is_within(file: object, folder: Path) -> bool:
    """Return whether a file lies in a folder, whatever way its name takes there."""
    return os.path.realpath(folder) in map(str, Path(os.path.realpath(str(file))).parents)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary folders that dead processes of this user left beside `path`.

    Links and the folders of other users are left alone, whatever their names (`lock_folder`).
    """
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}{END}"):
        with suppress(OSError):  # of a living process, of another user, or gone
            remove_locked(temporary, lock_folder(temporary))


def create_locked(new_name: Callable[[], Path], path: Path) -> tuple[Path, int]:
    """Make a folder of a new name, which only its owner may enter, and lock it if the disk has locks.

    Return a descriptor of the folder, which holds the lock. Raise `FileExistsError`, and other system errors with the
    name `path`. A folder without its lock would be taken for that of a dead process.
    """
    while True:
        folder = new_name()
        try:
            folder.mkdir(MODE)
        except FileExistsError:
            raise
        except OSError as error:  # no such folder, or not ours to write
            error.filename = str(path)
            raise
        try:
            descriptor = _open(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            with suppress(OSError):
                folder.rmdir()
            error.filename = str(path)
            raise
        try:
            if not os.listdir(descriptor):  # or it is not the folder that was made
                _lock(descriptor, folder)
                return folder, descriptor
        except (BlockingIOError, FileNotFoundError):
            pass  # another process removed it before the lock was taken
        except OSError as error:
            if not is_of_system(error):
                return folder, descriptor
            remove_locked(folder, descriptor)
            error.filename = str(path)
            raise
        os.close(descriptor)


def lock_folder(folder: Path) -> int:
    """Return a descriptor that holds the lock of a folder.

    Raise `OSError` where another process holds the lock, the folder is gone, or `folder` is not a folder that this user
    made by `create_locked`. Anybody may put a symbolic link or a folder of theirs under such a name in a shared folder,
    so a link is never followed, and the folder must belong to this user and have the permissions of temporary ones.
    """
    descriptor = _open(folder)
    try:
        _lock(descriptor, folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open(folder: Path) -> int:
    """Return a descriptor of a folder; raise `OSError` for a link."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _lock(descriptor: int, folder: Path) -> None:
    """Take the lock of an open folder, or raise `OSError` as `lock_folder` does."""
    state = os.fstat(descriptor)
    if state.st_uid != os.geteuid() or state.st_mode & 0o1777 != MODE:
        raise PermissionError(f"{folder}: is not a temporary folder of this user")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if not os.path.samestat(state, os.lstat(folder)):
        raise FileNotFoundError(f"{folder}: was removed before it was locked")


def remove_locked(folder: Path, descriptor: int) -> None:
    """Remove all that is in an open folder, as far as possible, and the folder if it still has its name; close it.

    No link is followed. What has taken the folder's name meanwhile is left alone.
    """
    with suppress(OSError):
        for _, folders, files, here in os.fwalk(dir_fd=descriptor, topdown=False):
            for name in files + folders:
                with suppress(OSError):
                    try:
                        os.unlink(name, dir_fd=here)
                    except IsADirectoryError:
                        os.rmdir(name, dir_fd=here)
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            os.rmdir(folder)
    os.close(descriptor)
