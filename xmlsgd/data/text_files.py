"""Text files of every reader of the package, opened for their bytes."""

from __future__ import annotations

import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from ..errors import DataError
from .files import open_packed, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE_BYTES = 64 << 20
# First bytes of what Python's standard library does not unpack, or what may hold several files.
OTHERWISE_PACKED = (
    (b"\x28\xb5\x2f\xfd", "zstandard"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip"),
    (b"PK\x03\x04", "zip"),
)


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading, through the decompressor that its first bytes ask for.

    Raises `DataError` for what is no regular file and for what only other tools unpack, `OSError` where the system
    refuses.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        got = "a directory" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise DataError(f"{path}: path must name a regular file, got {got}")
    with open_regular(path) as file:
        start = file.read(6)
    for magic, name in OTHERWISE_PACKED:
        if start.startswith(magic):
            raise DataError(f"{path}: must be text, plain or packed by gzip, bzip2 or xz, got {name}; unpack it first")
    with open_packed(path) as stream:
        yield stream
