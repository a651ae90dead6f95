"""File formats of data sets, one module each, found by name.

A new format is one new module that defines `FORMAT`, an instance of a subclass of `base.Format`. Its name then works as
`to=` of `convert` and as `--to` of the command line, and `load_file` and `load_folder` find its files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..registry import find_part, part_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .base import Format

ANY_TEXT = "libsvm"  # the format of files whose name says nothing


def format_names() -> list[str]:
    """Return the names of all formats."""
    return part_names(__name__)


def get_format(name: str) -> Format:
    """Return a format by its name; raise `DataError` with all names for another one."""
    return find_part(__name__, "format", name, "FORMAT")


def all_formats() -> list[Format]:
    """Return all formats, those that are preferred in a folder of several first."""
    return sorted(map(get_format, format_names()), key=lambda found: found.precedence)


def format_of(path: Path) -> Format | None:
    """Return the format of a file, or of a folder that holds one set of rows; None for other folders."""
    found = next((found for found in all_formats() if found.recognizes(path)), None)
    return get_format(ANY_TEXT) if found is None and not path.is_dir() else found


def holds_text(path: Path) -> bool:
    """Return whether a path has rows as text; a path that does not exist may name a set of rows, which has none."""
    found = format_of(path) if path.exists() else None
    if found is None and path.is_dir() and (parts := find_parts(path, ("train", "test"))):
        found = parts[0]
    return found is not None and found.is_text


def find_parts(folder: Path, required: Sequence[str] = ("train",)) -> tuple[Format, dict[str, Path]] | None:
    """Return a format of which a folder holds a part that is `required`, and its parts; None where there is none.

    A format of the first of these parts is preferred.
    """
    pairs = ((part, each) for part in required for each in all_formats())
    return next(((each, parts) for part, each in pairs if part in (parts := each.find(folder))), None)
