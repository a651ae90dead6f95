"""JSON files of saved models, which come from anywhere: nothing in them is believed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...errors import ModelFileError, shorten

if TYPE_CHECKING:
    from pathlib import Path


def check_regular(file: Path) -> None:
    """Raise `ModelFileError` for a link, which may lead out of the folder, and for what is no file."""
    if file.is_symlink() or not file.is_file():
        raise ModelFileError(f"{file}: is missing or no regular file; copy the whole folder again")


def read_object(file: Path, most: int) -> dict[str, Any]:
    """Return the JSON object in a file of at most `most` bytes; `ModelFileError` where there is none."""
    check_regular(file)
    if file.stat().st_size > most:
        raise ModelFileError(f"{file}: must be at most {most} bytes, got {file.stat().st_size}")
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file}: must be a JSON object, got {shorten(str(error), 100)}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{file}: must be a JSON object, got {shorten(value)}")
    return value
