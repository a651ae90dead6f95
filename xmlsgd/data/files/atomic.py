"""Atomic writes: files and folders appear complete or not at all, even if the process is killed.

They are written to a temporary folder beside the final name, and renamed when they are complete and on the disk.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from .reading import checked_path
from .system_errors import disk_errors_named, errors_named
from .temporary import OPEN_FOLDERS, temporary_folder_beside

Read = TypeVar("Read")

TRIES = 100  # to read a folder while others replace it
NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV)
COMPRESSORS: dict[str, Callable[..., Any]] = {
    ".gz": partial(gzip.GzipFile, "", "wb", 6, mtime=0),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
}
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # fcntl.h, linux/fs.h


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` once it is complete and on the disk.

    A path that is not a regular file, such as `/dev/null`, is opened directly: a rename would replace it by a file.
    """
    named = checked_path(path)
    path = _resolved(named)
    if named.exists() and not path.is_file():  # `named`, as the real path of an unnamed pipe does not exist
        with disk_errors_named(named), named.open("wb") as stream:
            yield stream
        return
    with temporary_folder_beside(path, by_descriptor=True) as temporary:
        whole = temporary / path.name
        with whole.open("xb") as stream:
            yield stream
        sync(whole)
        with errors_named(path):
            whole.replace(path)
    sync(path.parent)


def compressed_by_name(path: str | os.PathLike[str], stream: BinaryIO) -> AbstractContextManager[BinaryIO]:
    """Return a stream that compresses into `stream` if the name of the file ends in `.gz`, `.bz2` or `.xz`."""
    pack = COMPRESSORS.get(Path(path).suffix)
    return nullcontext(stream) if pack is None else pack(stream)


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str], check: Callable[[Path], object] | None = None, replace: bool = True
) -> Iterator[Path]:
    """Create an empty folder that replaces `path` once it is complete and on the disk.

    An earlier folder is replaced in one step, so that a complete one exists at any time. Some systems cannot exchange
    two names, such as a container whose image has the folder. There, a kill between two renames leaves the earlier
    folder as `NAME.old-1a2b3c4d`. Without `replace`, an earlier folder that is not empty raises `OSError`.

    check : raise an error if an earlier folder must not be replaced; called at the beginning, and again at the end, as
    writing may take hours.
    """
    named = checked_path(path)
    path = _resolved(named)
    check_not_within(path)
    if check:
        check(named)
    with parents_created(path), temporary_folder_beside(path, by_descriptor=True) as temporary:
        whole = temporary / path.name
        whole.mkdir()
        yield whole
        if check:
            check(named)
        for entry in (*whole.rglob("*"), whole):
            sync(entry)
        with errors_named(path):
            if replace:
                _put_in_place(whole, path)
            else:
                whole.rename(path)
    sync(path.parent)


@contextmanager
def parents_created(path: Path) -> Iterator[None]:
    """Create the missing folders above `path`; if the block fails, remove those that are still empty."""
    missing = [folder for folder in path.absolute().parents if not folder.exists()]
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def read_consistently(path: Path, read: Callable[[Path], Read]) -> Read:
    """Return `read(path)`; read again if the folder was replaced meanwhile, so that no result mixes two folders."""
    for _ in range(TRIES):
        before = _identity(path)
        try:
            found = read(path)
        except Exception:
            if _identity(path) == before:
                raise
            continue
        if _identity(path) == before:
            return found
    raise OSError(errno.EAGAIN, "is replaced again and again while it is read", str(path))


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def check_not_within(path: Path) -> None:
    """Raise `FileExistsError` if `path` is, or contains, the current folder, which cannot be replaced."""
    with suppress(FileNotFoundError):  # the current folder was removed
        here = Path.cwd()
        if path == here or path in here.parents:
            raise FileExistsError(f"{path}: is the current folder and cannot be replaced; name a folder in it")


def _resolved(path: Path) -> Path:
    """Return the path with links resolved; a path below `OPEN_FOLDERS`, which leads by a descriptor, is left alone."""
    return path if OPEN_FOLDERS in path.parents else Path(os.path.realpath(path))


def _put_in_place(whole: Path, path: Path) -> None:
    """Rename `whole` to `path`; an earlier folder of this name moves to the temporary folder and is removed with it."""
    try:
        whole.rename(path)  # works if there is nothing, or an empty folder
        return
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    try:
        _exchange(whole, path)
    except OSError as error:
        if error.errno not in NO_EXCHANGE:
            raise
        old = path.with_name(f"{path.name}.old-{uuid.uuid4().hex[:8]}")
        move_folder(path, old)
        try:
            whole.rename(path)
        except OSError:
            old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)


def move_folder(path: Path, new: Path) -> None:
    """Rename a folder; copy one that cannot be renamed, as in a lower layer of an overlay, and remove it then."""
    try:
        path.rename(new)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(path, new)


def _exchange(one: Path, other: Path) -> None:
    """Swap two names in one step; raise `OSError` with one of `NO_EXCHANGE` if system or disk cannot do it."""
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(other)) from None
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return numbers that identify a folder, and change if another one takes its name; None if there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_mtime_ns
