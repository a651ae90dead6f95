"""Files and folders that appear whole or not at all, whoever is killed meanwhile, and files that may be packed.

What is written grows in a scratch folder beside its final name, `.NAME.1a2b3c4d.partial`, and takes that name when it
is complete and on the disk. A process holds a lock on its scratch folder as long as it lives: one that can be locked
was left by a process that died, and goes away when the name is written next.
"""

from __future__ import annotations

import bz2
import errno
import glob
import gzip
import hashlib
import lzma
import os
import shutil
import tempfile
import uuid
import zlib
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

try:
    import fcntl
except ImportError:  # Windows, where scratch folders of processes that died stay until somebody removes them
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Read = TypeVar("Read")

PACKED_ENDS = (".gz", ".bz2", ".xz")
MAGIC = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
BROKEN_STREAM = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what reading a damaged file raises
BLOCK_BYTES = 1 << 20
OLD = "old"  # in a scratch folder: what gave way to the new folder, where the two cannot change places at once
TRIES = 100  # of two who write or read one name at once, one is done each time
MANIFEST, DESCRIPTION = "MANIFEST.json", "model.json"  # by which a saved model is known
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP)
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # fcntl.h, linux/fs.h


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes the name `path` once it is complete and on the disk; an earlier file gives way.

    What is no regular file, such as `/dev/null`, is written in place: a rename would put a file there instead.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        with naming(path), path.open("wb") as stream:
            yield stream
        return
    with scratch_beside(path) as scratch:
        whole = scratch / path.name
        with whole.open("xb") as stream:
            yield stream
        sync(whole)
        whole.replace(path)
    sync(path.parent)


@contextmanager
def whole_folder(path: str | os.PathLike[str], replace: bool = True) -> Iterator[Path]:
    """Give an empty folder that takes the name `path` once it is complete and on the disk.

    An earlier folder gives way in the same step, so that the name always leads to a whole one (on Linux; elsewhere a
    kill between two renames leaves the earlier one to be brought back by the next who reads or writes). Whether it may
    give way is for the caller to check; without `replace` it raises `FileExistsError` or `OSError`, unless it is empty.
    """
    path = Path(os.path.realpath(path))
    _check_not_within(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch_beside(path) as scratch:
        whole = scratch / path.name
        whole.mkdir()
        yield whole
        for entry in (*whole.rglob("*"), whole):
            sync(entry)
        if replace:
            _put_in_place(whole, path, scratch / OLD)
        else:
            whole.rename(path)
    sync(path.parent)


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """Give an empty folder beside `path` that goes away at the end, as do those that dead processes left there.

    An error about a full disk that names no file names `path`.
    """
    _sweep(path)
    scratch, lock = _new_scratch(path)
    try:
        with naming(path):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def scratch_folder() -> AbstractContextManager[Path]:
    """Give an empty folder for temporary files that goes away at the end, as do those that dead processes left."""
    return scratch_beside(Path(tempfile.gettempdir(), "xmlsgd"))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error about a full disk name `path` where it names a scratch file, which is gone, or none.

    Those of writing into an open file name none.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM and (error.filename is None or ".partial" in str(error.filename)):
            error.filename = str(path)
        raise


def read_unreplaced(path: Path, read: Callable[[Path], Read]) -> Read:
    """Return `read(path)` of a folder, read again if another one took its name meanwhile: no answer mixes two."""
    if not path.exists():
        _sweep(path)
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


@contextmanager
def open_packed(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for reading, through the decompressor that its first bytes ask for."""
    with open(path, "rb") as file:
        start = file.read(6)
        file.seek(0)
        for magic, opener in MAGIC:
            if start.startswith(magic):
                with cast("Any", opener)(file, "rb") as stream:
                    yield stream
                return
        yield file


def is_model(folder: Path) -> bool:
    """Say whether `folder` looks like a saved model; it may be damaged."""
    return (folder / MANIFEST).is_file() and (folder / DESCRIPTION).is_file()


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def state_of(path: str | os.PathLike[str]) -> dict[str, int]:
    """Return what changes when a file is written again."""
    state = os.stat(path)
    return {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns}


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name != "posix" and path.is_dir():
        return  # cannot be opened there
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def _check_not_within(path: Path) -> None:
    """Raise `FileExistsError` where the process stands in `path`: what took its name would not be where it stands."""
    with suppress(FileNotFoundError):  # it stands in a folder that was removed
        here = Path.cwd()
        if path == here or path in here.parents:
            raise FileExistsError(f"{path}: is the current folder and cannot be replaced; name a folder in it")


def _put_in_place(whole: Path, path: Path, old: Path) -> None:
    """Give a folder its final name; where names cannot be exchanged, what had it goes to `old`."""
    for last in (*[False] * (TRIES - 1), True):
        try:
            whole.rename(path)  # where there is nothing, or an empty folder
            return
        except OSError as error:
            if last or error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                _bring_back(old, path)
                raise
        with suppress(FileNotFoundError):  # another process has just taken it away: try the plain rename again
            try:
                _exchange(whole, path)
                return
            except OSError as error:
                if error.errno not in NO_EXCHANGE:
                    raise
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)


def _exchange(one: Path, other: Path) -> None:
    """Swap two names in one step; raise `OSError` with one of `NO_EXCHANGE` where system or disk cannot."""
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(other)) from None
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))


def _new_scratch(path: Path) -> tuple[Path, int | None]:
    """Make a scratch folder and lock it; the lock is None where the disk knows no locks."""

    def make() -> Path:
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
        try:
            scratch.mkdir(0o700)
        except OSError as error:  # no such folder, or not ours to write
            error.filename = str(path)
            raise
        return scratch

    return make_locked(make)


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


def _sweep(path: Path) -> None:
    """Remove the scratch folders that dead processes left beside `path`, and bring back what they had set aside."""
    for scratch in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.partial"):
        try:
            lock = lock_folder(scratch)
        except OSError:
            continue  # of a living process, or gone
        if lock is not None:
            _bring_back(scratch / OLD, path)
            shutil.rmtree(scratch, ignore_errors=True)
            os.close(lock)


def _bring_back(old: Path, path: Path) -> None:
    """Give the folder that had stepped aside its name again, unless another one has it."""
    with suppress(OSError):
        if not path.exists():
            old.rename(path)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return what tells a folder from another one that took its name; None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_mtime_ns
