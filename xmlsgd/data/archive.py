"""Unpack downloaded archives: completely or not at all, and never outside the target folder."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from ..errors import DataError, shorten
from .files import atomic_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

COPY_BYTES = 1 << 20

# What reading a damaged archive raises, beside an OSError without a number from a decompressor.
DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # zip: a compression that Python lacks
    RuntimeError,  # zip: encrypted
)


def extract(archive: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Unpack a zip or (compressed) tar archive into the new folder `folder`: all of it, or nothing.

    Raises `DataError` for anything but plain files and folders, for names that lead outside, for more than the disk
    holds, and for a damaged archive.
    """
    archive = Path(archive)
    try:
        with atomic_folder(folder, replace=False) as whole:
            free = shutil.disk_usage(whole).free
            for name, size, source in members(archive):
                free -= size
                if free < 0:
                    raise DataError(f"{archive}: the disk has no room for its content, {-free} bytes more are needed")
                target = inside(whole, name, archive)
                target.parent.mkdir(parents=True, exist_ok=True)
                with source, open(target, "wb") as out:
                    shutil.copyfileobj(source, out, COPY_BYTES)
    except DAMAGE as error:
        raise DataError(f"{archive}: not a readable zip or tar archive: {error}") from error
    except OSError as error:
        if error.errno is None:  # from a decompressor, not from the system
            raise DataError(f"{archive}: not a readable zip or tar archive: {error}") from error
        raise


def members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield (name, bytes, content) of each file of an archive; raise `DataError` for links and devices."""
    with open(archive, "rb") as file:
        is_zip = file.read(2) == b"PK"
    if is_zip:
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise DataError(f"{archive}: {shorten(info.filename)} is neither a file nor a folder")
                if not info.is_dir():
                    yield info.filename, info.file_size, zipped.open(info)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isfile() or member.isdir()):
                raise DataError(f"{archive}: {shorten(member.name)} is neither a file nor a folder")
            content = tar.extractfile(member)
            if content is not None:
                yield member.name, member.size, content


def inside(folder: Path, name: str, archive: Path) -> Path:
    """Return the path of a member below `folder`; raise `DataError` for a name that leads elsewhere."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or not path.parts or ".." in path.parts or ":" in path.parts[0] or "\0" in name:
        raise DataError(f"{archive}: {shorten(name)} leads outside of the archive's folder")
    return folder.joinpath(*path.parts)
