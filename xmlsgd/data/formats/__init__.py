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

DEFAULT_FORMAT = "libsvm"  # of files whose names show none


def format_names() -> list[str]:
    """Return the names of all formats."""
    return part_names(__name__)


def get_format(name: str) -> Format:
    """Return the format of a name; for an unknown one, raise `DataError` that lists all names."""
    return find_part(__name__, "format", name, "FORMAT")


def all_formats() -> list[Format]:
    """Return all formats by precedence, which decides in a folder with files of several formats."""
    return sorted(map(get_format, format_names()), key=lambda found: found.precedence)


def format_of(path: Path) -> Format | None:
    """Return the format of a file, or of a folder that holds one set of rows; None for other folders."""
    found = next((found for found in all_formats() if found.recognizes(path)), None)
    return get_format(DEFAULT_FORMAT) if found is None and not path.is_dir() else found


def holds_text(path: Path) -> bool:
    """Return whether a path holds rows as text; False if it does not exist, but may be the name of a data set."""
    found = format_of(path) if path.exists() else None
    if found is None and path.is_dir() and (splits := find_splits(path, ("train", "test"))):
        found = splits[0]
    return found is not None and found.is_text


def find_splits(folder: Path, required: Sequence[str]) -> tuple[Format, dict[str, Path]] | None:
    """Return the format of a folder's files and the path of each split; None if no format has a `required` one.

    A format that has the first of the required splits takes precedence over one that has a later one.
    """
    pairs = ((split, each) for split in required for each in all_formats())
    return next(((each, splits) for split, each in pairs if split in (splits := each.find(folder))), None)
