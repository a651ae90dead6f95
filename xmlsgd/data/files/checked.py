"""The note of a folder's files that were checked: whoever finds them as they were then need not check them again.

`checked.json` has the size and the time of change of each file. Who can write the folder can forge it: the note saves
time where bytes were damaged by accident, it proves nothing.
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
    """Return what changes when a file is written again: its size in bytes, its time of change in nanoseconds."""
    state = os.stat(path)
    return {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns}


def verified_states(folder: Path) -> dict[str, Any]:
    """Return the noted states of a folder's files by name, none where no sound note is there.

    A state as late as the note is left out: the file may have changed since, unseen.
    """
    try:
        with open_regular(folder / CHECKED) as stream:
            at = os.fstat(stream.fileno()).st_mtime_ns
            noted = json.loads(stream.read(MAX_BYTES))
        return {name: state for name, state in noted.items() if state["mtime_ns"] < at}
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return {}


def save_verified(folder: Path, states: Mapping[str, Mapping[str, int]]) -> None:
    """Note that files were checked in these states, which were looked up before; raise `OSError` where that fails."""
    with atomic_file(folder / CHECKED) as stream:
        stream.write(json.dumps(states, indent=1).encode() + b"\n")


def update_verified(folder: Path, states: Mapping[str, Mapping[str, int]]) -> None:
    """Note what a reader has checked, unless that is noted or the folder cannot be written.

    Nothing is written through a link, which may lead out of the folder, or into a pipe, which may have no reader.
    """
    with suppress(OSError):
        note = folder / CHECKED
        ours = not os.path.lexists(note) or (note.is_file() and not note.is_symlink())
        if ours and states != verified_states(folder):
            save_verified(folder, states)
