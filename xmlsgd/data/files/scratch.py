"""Scratch folders, which go away with the process that made them or when their name is asked for again.

A process holds a lock on its scratch folder, `.NAME.1a2b3c4d.partial` beside what it is for, as long as it lives: one
that can be locked was left by a process that died.
"""

from __future__ import annotations

import glob
import os
import tempfile
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .faults import MACHINE_ERRORS, NO_ROOM
from .locks import lock_folder, make_locked, remove_locked

if TYPE_CHECKING:
    from collections.abc import Iterator

OLD = "old"  # in a scratch folder: what gave way to the new folder, where the two cannot change places at once
END = ".partial"


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """Give an empty folder beside `path` that goes away at the end, as do those that dead processes left there.

    An error about a full disk that names no file names `path`, as does any of the machine's that names one in there.
    """
    sweep(path)
    scratch, lock = _new_scratch(path)
    try:
        with naming(path, scratch):
            yield scratch
    finally:
        remove_locked(scratch, lock)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give an empty folder for temporary files that goes away at the end, as do those that dead processes left.

    An error about a full disk names the folder for temporary files.
    """
    folder = Path(tempfile.gettempdir())
    with scratch_beside(folder / "xmlsgd") as scratch, naming(folder, scratch):
        yield scratch


@contextmanager
def naming(path: Path, scratch: Path | None = None) -> Iterator[None]:
    """Let an error about a full disk name `path` where it names no file: those of writing into an open file do not.

    So shall any error of the machine that names a file in `scratch`, which goes away.
    """
    try:
        yield
    except OSError as error:
        in_scratch = scratch is not None and error.filename is not None and _is_within(error.filename, scratch)
        if (error.errno in NO_ROOM and error.filename is None) or (error.errno in MACHINE_ERRORS and in_scratch):
            error.filename = str(path)
        raise


def _is_within(file: object, folder: Path) -> bool:
    """Return whether a file lies in a folder, whatever way its name takes there."""
    return os.path.realpath(folder) in map(str, Path(os.path.realpath(str(file))).parents)


def _new_scratch(path: Path) -> tuple[Path, int | None]:
    """Make a scratch folder and lock it; the lock is None where the disk knows no locks."""

    def make() -> Path:
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{END}")
        try:
            scratch.mkdir(0o700)
        except OSError as error:  # no such folder, or not ours to write
            error.filename = str(path)
            raise
        return scratch

    return make_locked(make)


def restore(path: Path) -> None:
    """Restore the folder at `path` if a writer was killed while it replaced it, where names cannot be exchanged."""
    if not path.exists():
        sweep(Path(os.path.realpath(path)))


def sweep(path: Path) -> None:
    """Remove the scratch folders that dead processes of this user left beside `path`; restore what was set aside.

    Links and the folders of other users are left alone, whatever their names (`lock_folder`).
    """
    for scratch in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}{END}"):
        try:
            lock = lock_folder(scratch)
        except OSError:
            continue  # of a living process, of another user, or gone
        if lock is None:
            continue
        if _restored(lock, path):
            remove_locked(scratch, lock)
        else:
            os.close(lock)


def _restored(scratch: int, path: Path) -> bool:
    """Give the folder set aside in an open scratch folder its name again; return False where that fails.

    What was set aside is not needed where something else has the name: it was replaced.
    """
    try:
        if not os.path.lexists(path):
            os.rename(OLD, path, src_dir_fd=scratch)
    except FileNotFoundError:
        pass  # nothing was set aside
    except OSError:
        return False
    return True


def bring_back(old: Path, path: Path) -> None:
    """Give the folder that had stepped aside its name again, unless another one has it."""
    with suppress(OSError):
        if not path.exists():
            old.rename(path)
