"""Text converted once: a store for each big text file, opened instead of the text while that has not changed."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import DataError
from .files import state_of
from .libsvm import read_blocks, read_libsvm
from .store import open_store, read_description, write_blocks

if TYPE_CHECKING:
    from .csr import Dataset

CACHE = "~/.cache/xmlsgd/stores"
MIN_BYTES = 4 << 20  # two cores parse so much plain text in 0.05 s: not worth a second copy on the disk
DEFAULTS = {"zero_based": True, "zero_based_labels": True, "header": "auto", "duplicates": "error"}  # of others: None
INDIFFERENT = ("n_threads", "labels_required")  # options that change nothing of what is read


def read_cached(path: Path, folder: Path, options: dict[str, Any]) -> Dataset:
    """Return the rows of a text file from its store in `folder`, which is made where it is missing or outdated.

    The store belongs to the file's absolute path and the options, and is outdated when the file's bytes or its time of
    change differ. Where `folder` cannot be written, the text is parsed. Raises `DataError` as `read_libsvm`.
    """
    identity = repr((os.path.realpath(path), sorted(relevant(options).items())))
    key = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:16]
    store = folder / f"{path.name.partition('.')[0]}-{key}"
    with suppress(DataError):  # none yet, or damaged
        description = read_description(store)
        # The reader of the text tells who needs labels that there are none.
        enough = description["label_nnz"] or not options.get("labels_required", True)
        if enough and description.get("source") == state_of(path):
            return open_store(store)
    try:
        text_to_store(path, store, options)
        return open_store(store)
    except OSError:
        return read_libsvm(path, **options)


def relevant(options: dict[str, Any]) -> dict[str, Any]:
    """Return those of the options of `read_libsvm` that ask for something else than is done without them."""
    asked = {name: value for name, value in options.items() if name not in INDIFFERENT}
    return {name: value for name, value in asked.items() if value != DEFAULTS.get(name)}


def text_to_store(path: Path, store: Path, options: dict[str, Any]) -> None:
    """Write the rows of a text file as a store, one block of rows in memory at a time."""
    source = state_of(path)  # before the first look: what changes later makes the store outdated
    blocks = read_blocks(path, **options)
    write_blocks(blocks, lambda: (cast("int", blocks.n_features), cast("int", blocks.n_labels)), store, source=source)
