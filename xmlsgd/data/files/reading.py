"""Files that may be packed, and their checksums."""

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

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKED_ENDS = (".gz", ".bz2", ".xz")
MAGIC = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
BROKEN_STREAM = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what reading a damaged file raises
BLOCK_BYTES = 1 << 20


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


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
