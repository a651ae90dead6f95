"""Open files that may be compressed, say what is wrong with damaged ones, and compute checksums."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from ...errors import DataError, shorten
from .system_errors import raise_system_error

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz")
COMPRESSIONS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)  # of a damaged file, see `damage_of`
BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
UNPACK, AS_CSV = "unpack it first", "save a spreadsheet as CSV"
# First bytes of files that are not text, what they are, and what to do.
NOT_TEXT = (
    (b"\x28\xb5\x2f\xfd", "zstandard", UNPACK),
    (b"\x04\x22\x4d\x18", "lz4", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "7-zip", UNPACK),
    (b"PK\x03\x04", "zip", f"{UNPACK}, or {AS_CSV}"),
    (b"\xd0\xcf\x11\xe0", "an old Office document", AS_CSV),
    (b"%PDF", "PDF", "extract its text, as by pdftotext"),
    (b"PAR1", "Parquet", "write it as CSV or JSON lines"),
    (b"\x93NUMPY", "a NumPy array", "save sparse rows by scipy.sparse.save_npz, see docs/data.md"),
)


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file for reading; raise `OSError` for anything else, without waiting for the writer of a pipe."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        yield stream


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return a path; raise `DataError` for one with a NUL character, which no file can have."""
    if "\0" in os.fspath(path):
        raise DataError(f"path must not hold a NUL character, got {shorten(os.fspath(path))}")
    return Path(path)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether something has the name `path`; not for a link to nothing, but for one that leads to itself."""
    return os.path.lexists(os.path.realpath(path))


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; decompress it if its first bytes show that it is compressed.

    Raises `DataError` for anything but a regular file and for a compression of other tools, `OSError` if the system
    refuses to open it.
    """
    mode = checked_path(path).stat().st_mode
    if not stat.S_ISREG(mode):
        got = "a directory" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise DataError(f"{path}: path must name a regular file, got {got}")
    with open_regular(path) as file:
        try:
            start = file.read(6)
        except OSError as error:  # it was opened, but cannot be read, such as /proc/self/mem
            raise damage_of(path, error) from error
        for magic, name, remedy in NOT_TEXT:
            if start.startswith(magic):
                wanted = "must be text, plain or packed by gzip, bzip2 or xz"
                raise DataError(f"{path}: {wanted}, got {name}; {remedy}")
        file.seek(0)
        opener = next((opener for magic, opener in COMPRESSIONS if start.startswith(magic)), None)
        if opener is None:
            yield file
        else:
            with cast("Any", opener)(file, "rb") as stream:
                yield stream


def damage_of(path: str | os.PathLike[str], error: Exception, where: str = "") -> DataError:
    """Return the `DataError` for one of `READ_ERRORS`, such as a damaged gzip file.

    Raises `error` itself if the disk or the machine is to blame. where : `file:line`, if the line is known.
    """
    raise_system_error(error, path)
    where = where or os.fspath(path)
    if reason := getattr(error, "strerror", None):
        return DataError(f"{where}: cannot be read, got {reason}")
    got = f"{type(error).__name__}: {error}"
    return DataError(f"{where}: file must be readable to its end, got {got}; get a complete copy")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest, block = hashlib.sha256(), memoryview(bytearray(1 << 18))
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()
