"""Scratch folders, which go away with the process that made them or when their name is asked for again.

A process holds a lock on its scratch folder, `.NAME.1a2b3c4d.partial` beside what it is for, as long as it lives: one
that can be locked was left by a process that died.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .faults import MACHINE_ERRORS, NO_ROOM
from .locks import lock_folder, make_locked

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
        shutil.rmtree(scratch, ignore_errors=True)
        if lock is not None:
            os.close(lock)
        if scratch.exists():
            _remove_with_one_file(scratch)


def _remove_with_one_file(folder: Path) -> None:
    """Remove a folder where hardly a file can be opened any more: `rmtree` opens one a level."""
    for above, folders, files in os.walk(folder, topdown=False):
        for name in files:
            with suppress(OSError):
                os.unlink(os.path.join(above, name))
        for name in folders:
            with suppress(OSError):
                os.rmdir(os.path.join(above, name))
    with suppress(OSError):
        os.rmdir(folder)


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


def sweep(path: Path) -> None:
    """Remove the scratch folders that dead processes left beside `path`, and bring back what they had set aside."""
    for scratch in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}{END}"):
        try:
            lock = lock_folder(scratch)
        except OSError:
            continue  # of a living process, or gone
        if lock is not None:
            bring_back(scratch / OLD, path)
            shutil.rmtree(scratch, ignore_errors=True)
            os.close(lock)


def bring_back(old: Path, path: Path) -> None:
    """Give the folder that had stepped aside its name again, unless another one has it."""
    with suppress(OSError):
        if not path.exists():
            old.rename(path)
