"""Open files that may be compressed, and compute checksums."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import lzma
import os
import stat
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ...errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKED_ENDS = (".gz", ".bz2", ".xz")
MAGIC = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
BROKEN_STREAM = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what reading a damaged file raises
BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
# First bytes of what Python's standard library does not unpack, or what may hold several files.
OTHERWISE_PACKED = (
    (b"\x28\xb5\x2f\xfd", "zstandard"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip"),
    (b"PK\x03\x04", "zip"),
)


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file for reading; raise `OSError` for anything else, without waiting for who writes to a pipe."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        yield stream


@contextmanager
def open_packed(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file for reading, through the decompressor that its first bytes ask for."""
    with open_regular(path) as file:
        start = file.read(6)
        file.seek(0)
        for magic, opener in MAGIC:
            if start.startswith(magic):
                with cast("Any", opener)(file, "rb") as stream:
                    yield stream
                return
        yield file


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


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
