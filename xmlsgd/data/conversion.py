"""Turn a data set of any form into another form, text and stores within bounded memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from .cache import text_to_store
from .files import PACKED_ENDS, parents_made, scratch_beside
from .libsvm import write_libsvm
from .split_and_npz import write_npz, write_split
from .store import LABEL_NAMES, check_free, is_store, replacing, write_label_names, write_store
from .validation import check_choice
from .xmc import is_text, load_file, load_folder

if TYPE_CHECKING:
    from .csr import Dataset

TEXT_ENDS = (".txt", ".svm", ".libsvm")
FORMS = ("store", "text", "npz", "split")


def convert(
    source: str | os.PathLike[str], target: str | os.PathLike[str], form: str | None = None, **options: Any
) -> None:
    """Write the data set `source`, of any form that `load_file` or `load_folder` reads, as `target`.

    `form` is "store", "text", "npz" or "split"; by default "text" for a target `.txt`, `.svm` or `.libsvm` (then also
    `.gz`, `.bz2`, `.xz`), else "store". A folder with train and test part becomes such a folder; a single text file
    keeps no label names. Text is taken block by block and stores are mapped, so that they may be larger than memory;
    each npz or pair of the split form is read whole. `options` say how text is to be read, as in `read_libsvm`. The
    target appears when it is complete, with the folders above it that are missing, and takes the place of an earlier
    text file, store or pair of stores. Raises `DataError` for bad input, `FileExistsError` where anything else has the
    target's name.
    """
    source, target = Path(source), Path(target)
    if form is None and target.suffix == ".npz":
        raise DataError(f"{target}: npz data are a folder of X and Y; name a folder, with npz as its form (--to npz)")
    form = form or ("text" if _is_text_name(target) else "store")
    check_choice("form", form, FORMS)
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    single = source.is_file() or is_store(source)
    if not (single and form == "text"):
        check_free(target)
    if form == "store" and is_text(source):
        text_to_store(source, target, options)
        return
    with parents_made(target), scratch_beside(target) as scratch:
        if single:
            _write_one(load_file(source, cache=scratch, **options), target, form)
        else:
            _write_parts(*load_folder(source, cache=scratch, **options), target, form)


def _write_one(dataset: Dataset, target: Path, form: str) -> None:
    """Write a single set of rows; the forms that are pairs call it their train part."""
    if form == "text":
        write_libsvm(dataset, target)
    elif form == "store":
        write_store(dataset, target)
    else:
        _write_parts(dataset, None, target, form)


def _write_parts(train: Dataset, test: Dataset | None, target: Path, form: str) -> None:
    """Write a folder with train and test part."""
    if form == "npz":
        write_npz(target, train, test)
    elif form == "split":
        write_split(target, train, test)
    else:
        with replacing(target) as folder:
            for part, dataset in (("train", train), ("test", test)):
                if dataset is not None and form == "store":
                    write_store(dataset, folder / part)
                elif dataset is not None:
                    write_libsvm(dataset, folder / f"{part}.txt")
            if form == "text" and train.label_names is not None:
                write_label_names(train.label_names, train.n_labels, folder / LABEL_NAMES)


def _is_text_name(path: Path) -> bool:
    return (Path(path.stem) if path.suffix in PACKED_ENDS else path).suffix in TEXT_ENDS
