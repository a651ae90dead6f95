"""Check output names before the work begins, so that no input, model or other data is overwritten."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.files.atomic import check_not_within
from ..data.files.manifest import MODEL
from .exit_codes import UsageError
from .flags import DIR, FILE, PATH, Flag, flag_of
from .messages import STDIN, STDOUT


def check_files(flags: Sequence[Flag], values: Mapping[str, Any]) -> None:
    """Check all files that a command with these flags will write, given the values of the flags."""
    out = next((values["out"] for flag in flags if flag.name == "out" and flag.value_type is DIR), None)
    inputs = [values.get(flag.name) for flag in flags if flag.value_type in (PATH, DIR) and flag.name != "out"]
    for flag in flags:
        if flag.value_type is FILE:
            check_file(values[flag.name], flag_of(flag.name), *inputs, beside=out)


def check_file(path: str | None, flag: str, *inputs: str | None, beside: str | None = None) -> None:
    """Raise `UsageError` if no file of this name can be written, or if it would replace an input.

    beside : a folder that the same command writes, in which the file must not lie.
    """
    if path is None or path == STDOUT:
        return
    here, folder = Path(path), Path(os.path.realpath(path)).parent
    if here.is_dir():
        raise UsageError(f"{flag} {path}: must be a file, got a folder; choose another name")
    if here.exists() and not here.is_file():  # such as /dev/stdout, which is written in place
        if not os.access(here, os.W_OK):
            raise UsageError(f"{flag} {path}: cannot be written; choose another name")
    elif not folder.is_dir():
        raise UsageError(f"{flag} {path}: the folder {folder} does not exist; make it first")
    else:
        check_parent(path, flag)
    if beside is not None and _is_in(path, beside):
        raise UsageError(f"{flag} {path}: must not lie in --out {beside}, which is written as a whole; choose another")
    check_apart(path, flag, inputs)


def check_new(path: str, flag: str, overwrite: bool, remedy: str = "") -> None:
    """Raise `UsageError` if a file or a folder with content has this name, unless `overwrite`."""
    here = Path(path)
    if not overwrite and (here.is_file() or (here.is_dir() and any(here.iterdir()))):
        raise UsageError(f"{flag} {path}: exists; --overwrite replaces it{remedy}, or choose another name")


def check_folder(out: str, *inputs: str | None, flag: str = "--out", overwrite: bool = True) -> None:
    """Raise `UsageError` if no model folder can be written to `out`, or if an input is or lies there.

    Without `overwrite`, the folder must be new or empty.
    """
    path = Path(out).absolute()
    try:
        check_not_within(Path(os.path.realpath(path)))
    except FileExistsError as error:
        raise UsageError(f"{flag} {error}") from error
    if reason := MODEL.obstacle_at(path):
        raise UsageError(f"{flag} {out}: {reason}")
    if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{flag} {out}: cannot be written; choose another name or change its permissions")
    check_parent(out, flag)
    check_apart(out, flag, inputs)
    check_new(out, flag, overwrite)


def check_parent(path: str, flag: str) -> None:
    """Raise `UsageError` if missing folders above `path`, or above the target of a link, or `path` cannot be made."""
    real = Path(os.path.realpath(path))
    above = next(folder for folder in real.parents if os.path.lexists(folder))
    if not above.is_dir():
        raise UsageError(f"{flag} {path}: {above} is not a folder; choose another name")
    if not os.access(above, os.W_OK):
        raise UsageError(f"{flag} {path}: {above} cannot be written; choose another folder or change permissions")
    state = above.stat()
    is_kept = state.st_mode & stat.S_ISVTX and os.path.lexists(real)  # by its owner, in a folder with the sticky bit
    if is_kept and os.geteuid() not in (0, state.st_uid, real.lstat().st_uid):
        raise UsageError(f"{flag} {path}: belongs to another user, who alone may replace it; choose another name")


def check_apart(path: str, flag: str, inputs: Iterable[str | None]) -> None:
    """Raise `UsageError` if an output is an input or one of its files, or lies in a saved model or a store.

    It must not be a folder that contains an input either: the input would be replaced with the folder.
    """
    from ..data.formats.base import is_store
    from ..data.loading import is_data_file

    for given in inputs:
        if given is None:
            continue
        if _is_same(given, path):
            raise UsageError(f"{flag} {path}: is an input of this command; choose another name")
        if given != STDIN and os.path.exists(given):
            if os.path.isdir(path) and _is_in(given, path):
                raise UsageError(f"{flag} {path}: holds {given}, an input of this command; choose another name")
            if _is_in(path, given) and is_data_file(Path(path)):
                raise UsageError(f"{flag} {path}: is a data file of {given}; choose another name")
    for folder in Path(os.path.realpath(path)).parents:
        if (is_model := MODEL.exists_at(folder)) or is_store(folder):
            kind = "saved model" if is_model else "store"
            raise UsageError(f"{flag} {path}: lies in the {kind} {folder}; choose a folder outside")


def _is_same(given: str, path: str) -> bool:
    """Return whether an input, which may be standard input, and a path are the same file or folder."""
    try:
        there = os.fstat(sys.stdin.fileno()) if given == STDIN else os.stat(given)
        here = os.stat(path)
    except (OSError, ValueError, AttributeError):  # nothing there, or no real stream
        return False
    return not stat.S_ISCHR(here.st_mode) and os.path.samestat(there, here)


def _is_in(path: str, folder: str) -> bool:
    """Return whether a path is this folder or lies in it; neither needs to exist."""
    real = Path(os.path.realpath(path))
    return Path(os.path.realpath(folder)) in (real, *real.parents)
