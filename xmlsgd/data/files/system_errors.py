"""Errors of the disk and the machine: tell them from damaged files, and name the file that was asked for."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Error numbers of an `OSError` for which the disk or the machine is to blame, not the name or content of a file.
DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
SYSTEM_ERRORS = DISK_FULL | {errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN}


def is_system_error(error: BaseException) -> bool:
    """Return whether the disk or the machine is to blame for an error: then no message may call the file damaged."""
    return isinstance(error, OSError) and error.errno in SYSTEM_ERRORS


def raise_system_error(error: BaseException, path: str | os.PathLike[str]) -> None:
    """Raise an error again, with the name of the file, if the disk or the machine is to blame for it."""
    if isinstance(error, OSError) and is_system_error(error):
        error.filename = error.filename or os.fspath(path)
        raise error


@contextmanager
def disk_errors_named(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Give the name `path` to errors about a full disk that name no file, such as those of writing to an open file.

    System errors about a file in `temporary`, which will be removed, get the name `path`, too.
    """
    try:
        yield
    except OSError as error:
        in_temporary = temporary is not None and error.filename is not None and _is_within(error.filename, temporary)
        if (error.errno in DISK_FULL and error.filename is None) or (is_system_error(error) and in_temporary):
            error.filename = str(path)
        raise


def _is_within(file: object, folder: Path) -> bool:
    """Return whether a file lies in a folder, after links are resolved."""
    return os.path.realpath(folder) in map(str, Path(os.path.realpath(str(file))).parents)


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Let system errors name `path` alone: those of a rename would name a temporary file, too."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of `shutil`, which names several files
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
