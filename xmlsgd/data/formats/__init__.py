"""File formats of data sets, one module each, found by name.

A new format is one new module that defines `FORMAT`, an instance of a subclass of `base.Format`. Its name then works as
`form=` of `convert` and as `--to` of the command line, and `load_file` and `load_folder` find its files.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .base import Format

ANY_TEXT = "libsvm"  # the format of files whose name says nothing


def format_names() -> list[str]:
    """Return the names of all formats."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "base")


def get_format(name: str) -> Format:
    """Return a format by its name; raise `DataError` with all names for another one."""
    from ..validation import check_choice
    from .base import Format

    check_choice("form", name, format_names())
    found = getattr(import_module(f".{name}", __name__), "FORMAT", None)
    if not isinstance(found, Format):
        raise TypeError(f"{__name__}.{name} must define FORMAT, an instance of a subclass of base.Format")
    return found


def all_formats() -> list[Format]:
    """Return all formats, those that are preferred in a folder of several first."""
    return sorted(map(get_format, format_names()), key=lambda found: found.precedence)


def format_of(path: Path) -> Format | None:
    """Return the format of a file, or of a folder that holds one set of rows; None for other folders."""
    found = next((found for found in all_formats() if found.recognizes(path)), None)
    return get_format(ANY_TEXT) if found is None and not path.is_dir() else found


def find_parts(folder: Path) -> tuple[Format, dict[str, Path]] | None:
    """Return the format of the train part that a folder holds, and its parts; None where there is no train part."""
    return next(((found, parts) for found in all_formats() if "train" in (parts := found.find(folder))), None)
