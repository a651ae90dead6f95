"""Convert data sets from one format into another; text into a store in bounded memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import DataError
from .files.atomic import parents_created
from .files.reading import COMPRESSED_SUFFIXES, checked_path
from .formats import format_of, get_format
from .formats.base import Format
from .formats.libsvm import text_to_store
from .loading import load_file, load_folder

TEXT_ENDS = (".txt", ".svm", ".libsvm")


def convert(
    source: str | os.PathLike[str], target: str | os.PathLike[str], to: str | None = None, **options: Any
) -> None:
    """Write a data set in another format.

    A text file is converted to a store block by block, and stores are memory-mapped, so that both may be larger than
    memory; everything else is read as a whole. The target appears when it is complete. It replaces an earlier text
    file, store or pair of stores; missing folders above it are created.

    Parameters
    ----------
    source : str or path
        A data set in any format that `load_file` or `load_folder` reads.
    target : str or path
        A file or folder; a source with a train and a test part becomes a folder. A single text file holds no label
        names.
    to : {"store", "libsvm", "npz", "split"}, optional
        By default "libsvm" for a target `.txt`, `.svm` or `.libsvm` (`.gz`, `.bz2`, `.xz`), "store" for others.
    **options
        How text is read, as in `read_libsvm`.

    Raises
    ------
    DataError
        For bad input.
    FileExistsError
        If anything else has the name of the target.
    """
    source, target = checked_path(source), checked_path(target)
    writer = format_for(target, to)
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    kind = format_of(source)
    if writer is get_format("store") and kind is get_format("libsvm"):
        text_to_store(source, target, options)
        return
    with parents_created(target):
        if kind is None:
            writer.write(target, *load_folder(source, **options), single=False)
        else:
            writer.write(target, load_file(source, **options), None, single=True)


def format_for(target: Path, to: str | None) -> Format:
    """Return the format named `to`, or that of the target's name; raise `DataError` for an unknown one."""
    if to is None and target.suffix == ".npz":
        raise DataError(f"{target}: npz data are a folder of X and Y; name a folder, with npz as its format (--to npz)")
    unpacked = Path(target.stem) if target.suffix in COMPRESSED_SUFFIXES else target
    return get_format(to or ("libsvm" if unpacked.suffix in TEXT_ENDS else "store"))
