"""Unpack downloaded archives: completely or not at all, and never outside the target folder."""

from __future__ import annotations

import os
import shutil
import zipfile
import zlib
from pathlib import Path

from ..errors import DataError
from .files.atomic import atomic_folder

# What reading a damaged archive raises; the last two where its compression is unknown, or where it is encrypted.
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def extract(archive: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Unpack a zip archive into the new folder `folder`: all of it, or nothing.

    `zipfile` puts files whose names lead elsewhere into the folder, and writes links as files. Raises `DataError` for
    more than the disk holds, and for a damaged archive.
    """
    try:
        with atomic_folder(folder, replace=False) as whole, zipfile.ZipFile(Path(archive)) as zipped:
            missing = sum(info.file_size for info in zipped.infolist()) - shutil.disk_usage(whole).free
            if missing > 0:
                raise DataError(f"{archive}: the disk has no room for its content, {missing} bytes more are needed")
            zipped.extractall(whole)
    except DAMAGE as error:
        raise DataError(f"{archive}: not a readable zip archive: {error}") from error
