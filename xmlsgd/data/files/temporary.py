"""Temporary folders that are removed by the process that made them; if it died, by the next one for the same path.

The temporary folder for a path is `.NAME.1a2b3c4d.partial` beside it. The process that made it holds a lock on it as
long as it lives: a folder whose lock is free was left by a process that died.

In a shared folder, other users can rename everything. So a temporary folder is recognized by its permissions, which
other users cannot give to a folder of this user, and it is written and emptied by its descriptor.
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

from ...errors import DataError
from .system_errors import disk_errors_named, errors_named, is_system_error

SUFFIX = ".partial"
# Permissions: for the owner alone, and the sticky bit, which has no meaning here, as a mark.
MODE = 0o1700
OPEN_FOLDERS = Path("/proc/self/fd")


@contextmanager
def temporary_folder_beside(path: Path, by_descriptor: bool = False) -> Iterator[Path]:
    """Create an empty folder beside `path`; remove it at the end. First remove those that dead processes left there.

    Errors about a full disk that name no file, and system errors about files in the folder, get the name `path`.

    by_descriptor : yield a path that leads to the folder even after others rename it, but in this process only.
    """
    remove_leftovers(path)
    temporary, lock = create_locked(lambda: path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{SUFFIX}"), path)
    try:
        opened = OPEN_FOLDERS / str(lock)
        with disk_errors_named(path, temporary):
            yield opened if by_descriptor and opened.exists() else temporary
    finally:
        remove_locked(temporary, lock)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create an empty folder in the system's folder for temporary files; remove it at the end.

    Folders that dead processes left are removed, too. An error about a full disk names the system's folder.
    """
    folder = Path(tempfile.gettempdir())
    with temporary_folder_beside(folder / "xmlsgd") as temporary, disk_errors_named(folder, temporary):
        yield temporary


@contextmanager
def sole_use(path: Path, refusal: str) -> Iterator[None]:
    """Keep other processes out of this context for `path`; it ends if the process dies.

    Raise `DataError` with the text `refusal` if another process is in it, unless the system or the disk has no locks. A
    process of another user that died keeps this one out, too: the error names the folder to remove then.
    """
    remove_leftovers(path)
    reserved = path.with_name(f".{path.name}.{'0' * 8}{SUFFIX}")
    try:
        folder, lock = create_locked(lambda: reserved, path)
    except FileExistsError:
        raise DataError(f"{refusal}; if it has died, remove {reserved}") from None
    try:
        try:
            _lock(lock, folder)
        except OSError:  # if this process were killed, the folder would stay
            folder.rmdir()
        yield
    finally:
        remove_locked(folder, lock)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary folders that dead processes of this user left beside `path`.

    Links and the folders of other users are left alone, whatever their names (`lock_folder`).
    """
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}{SUFFIX}"):
        remove_abandoned(temporary)


def remove_abandoned(folder: Path) -> None:
    """Remove a folder that `create_locked` of this user made if the process that made it is dead."""
    with suppress(OSError):  # of a living process, of another user, or gone
        remove_locked(folder, lock_folder(folder))


def create_locked(new_name: Callable[[], Path], path: Path) -> tuple[Path, int]:
    """Make a folder of a new name, which only its owner may enter, and lock it if the disk has locks.

    Return the folder and its descriptor, which holds the lock. Raise `FileExistsError`, and other system errors with
    the name `path`. A folder without its lock would be taken for that of a dead process.
    """
    while True:
        folder = new_name()
        try:
            if (descriptor := _create(folder, path)) is not None:
                return folder, descriptor
        except KeyboardInterrupt:
            remove_abandoned(folder)
            raise


def _create(folder: Path, path: Path) -> int | None:
    """Make and lock a folder for `create_locked`; return None if another process has removed it meanwhile."""
    with errors_named(path):
        folder.mkdir(MODE)
        try:
            descriptor = _open(folder)
        except FileNotFoundError:
            return None
        except OSError:
            with suppress(OSError):
                folder.rmdir()
            raise
    try:
        if not os.listdir(descriptor):  # or it is not the folder that was made
            _lock(descriptor, folder)
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass  # another process removed it before the lock was taken
    except KeyboardInterrupt:
        os.close(descriptor)
        raise
    except OSError as error:
        if not is_system_error(error):
            return descriptor
        remove_locked(folder, descriptor)
        error.filename = str(path)
        raise
    os.close(descriptor)
    return None


def lock_folder(folder: Path) -> int:
    """Return a descriptor that holds the lock of a folder.

    Raise `OSError` if another process holds the lock, the folder is gone, or it was not made by `create_locked` of this
    user. In a shared folder, anybody may make a link or a folder with such a name. So a link is never followed, and the
    folder must belong to this user and have the permissions `MODE`.
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
    """Remove the content of an open folder, as far as possible, then the folder if it still has its name; close it.

    Links are not followed. If something else has taken the name of the folder meanwhile, it is left alone. Ctrl-C is
    raised when the folder is gone; only a second one interrupts the removal.
    """
    try:
        _remove(folder, descriptor)
    except KeyboardInterrupt:
        _remove(folder, descriptor)
        raise
    finally:
        os.close(descriptor)


def _remove(folder: Path, descriptor: int) -> None:
    """Remove what `remove_locked` removes."""
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
