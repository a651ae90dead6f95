"""The forms in which data sets of the field lie on disks, told from the names of their files.

A file or a store holds one set of rows, a folder a train and a test part. Text is converted once into a memory-mapped
store (`cache.py`), other forms are read each time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from . import cache as store_cache
from .csr import Dataset
from .files import MODEL, PACKED_ENDS, open_packed
from .libsvm import read_libsvm
from .libsvm_blocks import COMMENTS, HEADER, MARK
from .split_and_npz import NPZ_NAMES, SPLIT_NAMES, read_npz, read_split
from .store import DESCRIPTION, is_store, open_store
from .text import read_raw_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PARTS = ("train", "test")
SUFFIXES = ("", *PACKED_ENDS)
LABEL_FILES = tuple(f"labels.txt{suffix}" for suffix in SUFFIXES)
PAIRS = (SPLIT_NAMES, NPZ_NAMES)
FORMS = (
    "train.txt and test.txt (or NAME_train.txt and NAME_test.txt; .gz, .bz2, .xz), "
    "trn_X_Xf.txt and trn_X_Y.txt (tst_*), X.trn.npz and Y.trn.npz (*.tst.npz), "
    f"stores train/ and test/, or a store ({DESCRIPTION})"
)
SEEN_BYTES = 1 << 16  # in which a header is looked for: small, since packed files are unpacked for it at each load


def load_file(
    path: str | os.PathLike[str], *, cache: bool | str | os.PathLike[str] | None = None, **options: Any
) -> Dataset:
    """Return the rows of a text file, of a store, or of the pair of files of which `path` is one.

    `options` say how text is to be read, as in `read_libsvm`. A text file is converted once into a store, which is
    opened as long as the text has the same size and time of change: with `cache=True` in `~/.cache/xmlsgd/stores`, with
    a folder there, with None (the default) if the file has 4 MB or more, with False never. Where the cache cannot be
    written, the text is parsed each time. Raises `DataError` as `file:line: what was wrong, what was got`.
    """
    return _load(Path(path), cache, options).dataset


def load_folder(
    path: str | os.PathLike[str], *, cache: bool | str | os.PathLike[str] | None = None, **options: Any
) -> tuple[Dataset, Dataset | None]:
    """Return (train, test) of a folder, test None where it has none; a file or store counts as train part.

    Both get the same features and labels: what a header, an option, a matrix or a store says; otherwise what the
    largest index of the two parts asks for. A folder of text or of pairs may have `labels.txt` (`.gz`, `.bz2`, `.xz`)
    with the name of label l on line l. `cache` and `options` are those of `load_file`. Raises `DataError` for a folder
    without any known form, and for parts that contradict each other.
    """
    path = Path(path)
    if not path.is_dir() or is_store(path):
        return load_file(path, cache=cache, **options), None
    found = _parts(path)
    if "train" not in found and MODEL.is_at(path):
        raise DataError(f"{path}: must hold data, got a saved model")
    if "train" not in found:
        got = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "an empty folder"
        raise DataError(f"{path}: must hold {FORMS}; got {got}")
    parts = [_load(found[part], cache, options) for part in PARTS if part in found]
    names_file = next((path / name for name in LABEL_FILES if (path / name).is_file()), None)
    parts = _agreed(parts, names_file)
    return parts[0].dataset, parts[1].dataset if len(parts) > 1 else None


def is_text(path: Path) -> bool:
    """Say whether `path` is a file of rows with labels and features, not one of a pair."""
    return path.is_file() and path.suffix != ".npz" and _pair_of(path) is None


@dataclass(frozen=True)
class _Part:
    """Rows, where they came from, and whether their numbers of (features, labels) were declared or merely seen."""

    dataset: Dataset
    path: Path
    declared: tuple[bool, bool] = (True, True)


def _load(path: Path, cache: bool | str | os.PathLike[str] | None, options: dict[str, Any]) -> _Part:
    """Return the rows of a file, pair or store."""
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if path.is_dir():
        if not is_store(path):
            raise DataError(f"{path}: must be a file or a store, got a folder; load_folder loads its train and test")
        _refuse(options, path)
        return _Part(open_store(path), path)
    pair = _pair_of(path)
    if pair is not None:
        return _load_pair(*pair, options)
    if path.suffix == ".npz":
        raise DataError(f"{path}: an npz file must be one of {', '.join(sum(NPZ_NAMES.values(), ()))}")
    return _Part(_load_text(path, cache, options), path, _declared(path, options))


def _pair_of(path: Path) -> tuple[Path, Path] | None:
    """Return the files of X and Y of which `path` is one."""
    pairs = (pair for names in PAIRS for pair in names.values() if path.name in pair)
    return next(((path.with_name(X), path.with_name(Y)) for X, Y in pairs), None)


def _load_pair(X_path: Path, Y_path: Path, options: dict[str, Any]) -> _Part:
    """Return the rows of a pair of files."""
    for path in (X_path, Y_path):
        if not path.is_file():
            raise DataError(f"{path}: X and Y must lie beside each other, got only one of them")
    if X_path.suffix == ".npz":
        _refuse(options, X_path)
        return _Part(read_npz(X_path, Y_path), X_path)
    dataset = read_split(X_path, Y_path, **options)
    X_declared, _ = _declared(X_path, options)
    Y_declared, _ = _declared(Y_path, options | {"n_features": options.get("n_labels")})
    return _Part(dataset, X_path, (X_declared, Y_declared))


def _load_text(path: Path, cache: bool | str | os.PathLike[str] | None, options: dict[str, Any]) -> Dataset:
    """Return the rows of a text file, from its store where `cache` says so."""
    wanted = path.stat().st_size >= store_cache.MIN_BYTES if cache is None else cache
    if wanted is False or not path.is_file():
        return read_libsvm(path, **options)
    folder = store_cache.CACHE if wanted is True else os.fspath(wanted)
    return store_cache.read_cached(path, Path(folder).expanduser(), options)


def _refuse(options: dict[str, Any], path: Path) -> None:
    """Raise `DataError` for options that would change how text is read, of something that is no text."""
    asked = store_cache.relevant(options)
    if asked:
        raise DataError(f"{path}: {', '.join(asked)} is for text files only")


def _declared(path: Path, options: dict[str, Any]) -> tuple[bool, bool]:
    """Tell whether the header of a text file that was read, or an option, says how many features and labels it has."""
    header = None
    if options.get("header", "auto") is not False and path.is_file():
        with open_packed(path) as stream:
            text = stream.read(SEEN_BYTES).removeprefix(MARK)
        comments = COMMENTS.match(text)
        header = HEADER.match(text, comments.end() if comments else 0)
    return (
        header is not None or options.get("n_features") is not None,
        (header is not None and header[3] is not None) or options.get("n_labels") is not None,
    )


def _parts(folder: Path) -> dict[str, Path]:
    """Return what to load for train and test: of stores, text, split form and npz the first with a train part."""
    return next((parts for parts in _candidates(folder) if "train" in parts), {})


def _candidates(folder: Path) -> Iterator[dict[str, Path]]:
    """Yield what each form finds in a folder."""
    yield {part: folder / part for part in PARTS if is_store(folder / part)}
    yield _text_files(folder)
    for names in PAIRS:
        yield {part: folder / names[part][0] for part in PARTS if any((folder / n).is_file() for n in names[part])}


def _text_files(folder: Path) -> dict[str, Path]:
    """Return `train.txt` and `test.txt` of a folder, or `NAME_train.txt` and `NAME_test.txt` where these are not."""
    found: dict[str, Path] = {}
    start = ""
    for part in PARTS:
        files = [folder / f"{start}{part}.txt{suffix}" for suffix in SUFFIXES]
        files = [file for file in files if file.is_file()]
        if not files and part == "train":
            files = sorted(file for suffix in SUFFIXES for file in folder.glob(f"*_train.txt{suffix}"))
        if len(files) > 1:
            raise DataError(f"{folder}: must hold one {part} file, got {', '.join(file.name for file in files)}")
        if files:
            found[part] = files[0]
            start = files[0].name.partition("train.txt")[0]
    return found


def _agreed(parts: list[_Part], names_file: Path | None) -> list[_Part]:
    """Return all parts with the same features, labels and label names; raise `DataError` where they contradict."""
    n_features = _agreed_size([part.dataset.n_features for part in parts], parts, 0, "features")
    n_labels = _agreed_size([part.dataset.n_labels for part in parts], parts, 1, "labels")
    names: Sequence[str] | None = None
    if names_file is not None:
        names = read_raw_text(names_file).texts
        if len(names) < n_labels or (len(names) > n_labels and any(part.declared[1] for part in parts)):
            wanted = f"{n_labels} labels of {parts[0].path.name}"
            raise DataError(f"{names_file}: must have a line for each of the {wanted}, got {len(names)}")
        n_labels = len(names)
    known = next((part.dataset.label_names for part in parts if part.dataset.label_names is not None), names)
    return [replace(part, dataset=_shaped(part.dataset, n_features, n_labels, known)) for part in parts]


def _agreed_size(sizes: list[int], parts: list[_Part], axis: int, what: str) -> int:
    """Return the number of features or labels that all parts can have."""
    declaring = [i for i, part in enumerate(parts) if part.declared[axis]]
    if not declaring:
        return max(sizes)
    known = declaring[0]
    for part, size in zip(parts, sizes, strict=True):
        if size > sizes[known] or (size < sizes[known] and part.declared[axis]):
            raise DataError(f"{part.path}: must have the {sizes[known]} {what} of {parts[known].path.name}, got {size}")
    return sizes[known]


def _shaped(dataset: Dataset, n_features: int, n_labels: int, names: Sequence[str] | None) -> Dataset:
    """Return the same rows with the given shape, and with `names` unless they have label names of their own."""
    X, Y = replace(dataset.X, n_cols=n_features), replace(dataset.Y, n_cols=n_labels)
    return Dataset(X, Y, names if dataset.label_names is None else dataset.label_names)
