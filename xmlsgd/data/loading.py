"""Load data sets of any format from files and folders, and convert them into other formats.

A file or a store holds one set of rows, a folder a training and a test split.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import DataError
from .csr import Dataset
from .files.atomic import parents_created
from .files.manifest import MODEL
from .files.reading import COMPRESSED_SUFFIXES, checked_path
from .formats import all_formats, find_splits, format_of, get_format
from .formats.base import LABEL_NAMES, SPLITS, FileRows, Format
from .formats.libsvm import SUFFIXES
from .formats.store import write_blocks
from .label_names import check_distinct, label_name
from .parser.blocks import LibsvmBlocks
from .text import read_raw_text

TEXT_ENDS = (".txt", ".svm", ".libsvm")
LABEL_FILES = tuple(f"{LABEL_NAMES}{suffix}" for suffix in SUFFIXES)


def load_file(path: str | os.PathLike[str], **options: Any) -> Dataset:
    """Return the rows of a text file, of a store, or of a pair of files, of which `path` is either one.

    Parameters
    ----------
    path : str or path
        The file or store. The options are those of text.
    zero_based, zero_based_labels : bool, default True
        Whether features, and labels, count from zero; from one otherwise.
    duplicates : {"error", "sum"}, default "error"
        What to do with a feature that occurs twice in a row. A label that occurs twice counts once.
    n_features, n_labels : int, optional
        The shape; by default that of the header, or else one more than the largest index.
    labels_required : bool, default True
        Whether a file without any label is an error; False for rows to predict labels for.
    n_threads : int, optional
        Threads that parse; by default one per core, at most 8.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        For bad input, as `file:line: what was wrong, what was got`, and for an unknown option.
    """
    path = checked_path(path)
    kind = format_of(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if kind is None:
        raise DataError(f"{path}: must be a file or a store, got a folder; load_folder loads its train and test")
    return kind.load(path, options).dataset


def load_folder(path: str | os.PathLike[str], **options: Any) -> tuple[Dataset, Dataset | None]:
    """Return the training and the test split of a folder.

    Both get the same numbers of features and labels: those that a header, an option, a matrix or a store declares; else
    one more than the largest index in either split. A folder of text or of pairs of files may have `labels.txt` (`.gz`,
    `.bz2`, `.xz`) with the name of label l on line l, from 0.

    Parameters
    ----------
    path : str or path
        The folder; a file or a store counts as a training split.
    **options
        As in `load_file`.

    Returns
    -------
    train : Dataset
    test : Dataset or None
        None if the folder has no test split.

    Raises
    ------
    DataError
        For a folder without files of a known format, and for splits that contradict each other.
    """
    splits = _read_splits(checked_path(path), options, required=("train",))
    return splits[0], splits[1] if len(splits) > 1 else None


def load_test(path: str | os.PathLike[str], **options: Any) -> Dataset:
    """Return the test split of a folder, which needs no training split; or all rows, if there is no test split.

    Arguments and errors are those of `load_folder`.
    """
    return _read_splits(checked_path(path), options, required=SPLITS)[-1]


def convert(
    source: str | os.PathLike[str], target: str | os.PathLike[str], to: str | None = None, **options: Any
) -> None:
    """Write a data set in another format.

    A text file is converted to a store block by block, and stores are memory-mapped, so that both may be larger than
    memory; everything else is read as a whole. The target appears only when it is complete, and replaces an earlier
    text file, store or pair of stores. Missing folders above it are created.

    Parameters
    ----------
    source : str or path
        A data set in any format that `load_file` or `load_folder` reads.
    target : str or path
        A file or folder; a source with a training and a test split becomes a folder. A single text file holds no label
        names.
    to : {"store", "libsvm", "npz", "split"}, optional
        By default "libsvm" for a target `.txt`, `.svm` or `.libsvm` (`.gz`, `.bz2`, `.xz`), "store" for others.
    **options
        How text is read, as in `load_file`.

    Raises
    ------
    DataError
        For bad input.
    FileExistsError
        If anything else has the name of the target.
    """
    source, target = checked_path(source), checked_path(target)
    writer = format_to_write(target, to)
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    kind = format_of(source)
    if writer is get_format("store") and kind is get_format("libsvm"):
        blocks = LibsvmBlocks(source, **options)
        write_blocks(blocks, lambda: blocks.shape, target)
        return
    with parents_created(target):
        if kind is None:
            writer.write(target, *load_folder(source, **options), single=False)
        else:
            writer.write(target, load_file(source, **options), None, single=True)


def format_to_write(target: Path, to: str | None) -> Format:
    """Return the format named `to`, or that of the target's name; raise `DataError` for an unknown one."""
    if to is None and target.suffix == ".npz":
        raise DataError(f"{target}: npz data are a folder of X and Y; name a folder, with npz as its format (--to npz)")
    unpacked = Path(target.stem) if target.suffix in COMPRESSED_SUFFIXES else target
    return get_format(to or ("libsvm" if unpacked.suffix in TEXT_ENDS else "store"))


def _read_splits(path: Path, options: dict[str, Any], required: Sequence[str]) -> list[Dataset]:
    """Return the splits of a folder, the training split first, or the rows of a file or a store.

    Raises `DataError` if a folder has none of the splits `required`.
    """
    if format_of(path) is not None:
        return [load_file(path, **options)]
    found = find_splits(path, required)
    if found is None and MODEL.exists_at(path):
        raise DataError(f"{path}: must hold data, got a saved model; pass the file or folder of its rows")
    if found is None:
        known = ", ".join(kind.files for kind in all_formats())
        got = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "an empty folder"
        raise DataError(f"{path}: must hold {known}; got {got}")
    kind, files = found
    splits = [kind.load(files[split], options) for split in SPLITS if split in files]
    names_file = next((path / name for name in LABEL_FILES if (path / name).is_file()), None)
    return _agreed(splits, names_file)


def is_data_file(path: Path) -> bool:
    """Return whether a path is a file that loading its folder would read."""
    return path.is_file() and (path.name in LABEL_FILES or any(kind.recognizes(path) for kind in all_formats()))


def _agreed(splits: list[FileRows], names_file: Path | None) -> list[Dataset]:
    """Return splits with equal features, labels and label names; raise `DataError` if they contradict each other."""
    n_features = _agreed_size([split.dataset.n_features for split in splits], splits, 0, "features")
    n_labels = _agreed_size([split.dataset.n_labels for split in splits], splits, 1, "labels")
    names: Sequence[str] | None = None
    if names_file is not None:
        names = [label_name(name) for name in read_raw_text(names_file).texts]
        if len(names) < n_labels or (len(names) > n_labels and any(split.declared[1] for split in splits)):
            wanted = f"{n_labels} labels of {splits[0].path.name}"
            raise DataError(f"{names_file}: must have a line for each of the {wanted}, got {len(names)}")
        check_distinct(names, str(names_file))
        n_labels = len(names)
    known = next((split.dataset.label_names for split in splits if split.dataset.label_names is not None), names)
    return [_shaped(split.dataset, n_features, n_labels, known) for split in splits]


def _agreed_size(sizes: list[int], splits: list[FileRows], axis: int, what: str) -> int:
    """Return the number of features or labels for all splits; raise `DataError` if they contradict each other."""
    declaring = [i for i, split in enumerate(splits) if split.declared[axis]]
    if not declaring:
        return max(sizes)
    known = declaring[0]
    for split, size in zip(splits, sizes, strict=True):
        if size > sizes[known] or (size < sizes[known] and split.declared[axis]):
            wanted = f"{sizes[known]} {what} of {splits[known].path.name}"
            raise DataError(f"{split.path}: must have the {wanted}, got {size}")
    return sizes[known]


def _shaped(dataset: Dataset, n_features: int, n_labels: int, names: Sequence[str] | None) -> Dataset:
    """Return rows with the given shape, and with label names `names` unless they have names of their own."""
    X, Y = replace(dataset.X, n_cols=n_features), replace(dataset.Y, n_cols=n_labels)
    return Dataset(X, Y, names if dataset.label_names is None else dataset.label_names)
