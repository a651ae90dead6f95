"""Text that is converted once: a store for each large text file, opened instead of it until the text changes."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import DataError, ModelFileError
from .csr import Dataset
from .files.manifest import file_state
from .files.temporary import END
from .formats.base import changed_options
from .formats.store import open_store, read_description, write_blocks
from .parser.blocks import LibsvmBlocks

CACHE = "~/.cache/xmlsgd/stores"
MIN_BYTES = 4 << 20  # two cores parse so much plain text in 0.05 s: not worth a second copy on the disk


def read_cached(path: Path, cache: bool | str | os.PathLike[str] | None, options: dict[str, Any]) -> Dataset | None:
    """Return the rows of a text file from its store, which is written where it is missing or outdated.

    The store belongs to the file's absolute path and the options, and is outdated when the file's size or time of
    change differ. Returns None where the text is to be parsed: by the caller's choice (`cache` as in `load_file`), or
    since no store can be written. Raises `DataError` as `read_libsvm`.
    """
    if cache is None:  # a temporary file has no store, which would outlive it
        cache = path.parent.suffix != END and path.stat().st_size >= MIN_BYTES
    if cache is False or not path.is_file():
        return None
    folder = Path(CACHE if cache is True else os.fspath(cache)).expanduser()
    identity = repr((os.path.realpath(path), sorted(changed_options(options).items())))
    key = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:16]
    store = folder / f"{path.name.partition('.')[0]}-{key}"
    with suppress(DataError, ModelFileError):  # none yet, or damaged
        description = read_description(store)
        # Where labels are required and missing, the reader of the text says so.
        enough = description["label_nnz"] or not options.get("labels_required", True)
        if enough and description.get("source") == file_state(path):
            return open_store(store)
    with suppress(OSError):
        text_to_store(path, store, options)
        return open_store(store)
    return None


def text_to_store(path: Path, store: Path, options: dict[str, Any]) -> None:
    """Write the rows of a text file as a store, one block of rows in memory at a time."""
    source = file_state(path)  # before the first look: what changes later makes the store outdated
    blocks = LibsvmBlocks(path, **options)
    write_blocks(blocks, lambda: blocks.shape, store, source=source)
