"""Remember which files of a folder were verified, so that they are not verified again until they change.

`checked.json` holds the size and the time of change of each file. It saves the time of a second verification against
accidental damage; it is no protection against somebody who can write to the folder.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .atomic import atomic_file
from .reading import open_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CHECKED = "checked.json"
MAX_BYTES = 1 << 20  # of thousands of files


def file_state(path: str | os.PathLike[str]) -> dict[str, int]:
    """Return a file's size in bytes and its time of change in nanoseconds, which differ when it is written again."""
    state = os.stat(path)
    return {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns}


def verified_states(folder: Path) -> dict[str, Any]:
    """Return the states in which a folder's files were verified, by name; empty without a valid `checked.json`.

    A file whose time of change is not before that of `checked.json` is left out: it may have changed afterwards.
    """
    try:
        with open_regular(folder / CHECKED) as stream:
            at = os.fstat(stream.fileno()).st_mtime_ns
            noted = json.loads(stream.read(MAX_BYTES))
        return {name: state for name, state in noted.items() if state["mtime_ns"] < at}
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return {}


def save_verified(folder: Path, states: Mapping[str, Mapping[str, int]]) -> None:
    """Save that files were verified in these states, which were read before; raise `OSError` where that fails."""
    with atomic_file(folder / CHECKED) as stream:
        stream.write(json.dumps(states, indent=1).encode() + b"\n")


def update_verified(folder: Path, states: Mapping[str, Mapping[str, int]]) -> None:
    """Save what a reader has verified, unless it is saved already or the folder cannot be written.

    Nothing is written through a link, which may lead out of the folder, or into a pipe, which may have no reader.
    """
    with suppress(OSError):
        note = folder / CHECKED
        ours = not os.path.lexists(note) or (note.is_file() and not note.is_symlink())
        if ours and states != verified_states(folder):
            save_verified(folder, states)
