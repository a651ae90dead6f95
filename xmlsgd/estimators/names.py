"""Names of label columns: integers, strings, floats or booleans, all of one type, which is kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import is_normalized

import numpy as np

from ..data.frames import as_list
from ..data.validation import check_unmasked
from ..errors import DataError, ModelFileError, shorten, warn

# A range names columns by their numbers; it takes no memory, however many columns a matrix has.
Names: TypeAlias = np.ndarray | range

KINDS = {bool: "booleans", int: "integers", float: "floats", str: "strings"}


def python_values(names: Names) -> list[Any]:
    """Return names as Python values, which compare exactly even if their types differ."""
    return names.tolist() if isinstance(names, np.ndarray) else list(names)


def as_names(names: Any, name: str) -> np.ndarray:
    """Return label names as an array. Strings in a list become objects, so that one long name does not widen all.

    Integers become int64, or uint64 if needed. Raises `DataError` for names of several types or an unsupported type,
    for integers beyond 64 bits, and for text that UTF-8 cannot encode. Names may repeat, as titles of real data do.
    """
    check_unmasked(names, name)
    names = as_list(names)
    if isinstance(names, str | bytes | dict) or not isinstance(names, Iterable):
        raise DataError(f"{name}: must be a list of label names, got {shorten(names)}")
    if not isinstance(names, np.ndarray) or names.dtype.kind not in "biufU":
        return label_array([label.item() if isinstance(label, np.generic) else label for label in names], name)
    if names.ndim != 1:
        raise DataError(f"{name}: must be a list of label names, got an array of shape {names.shape}")
    if names.dtype.kind == "f" and not np.isfinite(names).all():
        raise DataError(f"{name}: a label must be finite, got {names[~np.isfinite(names)][0]}")
    if names.dtype.kind == "U":
        check_text(names.tolist(), name)
    return names


def names_of_columns(names: Any, name: str = "label_names") -> Names | None:
    """Return the names of columns in order, or None if `names` is; warn if two columns have the same name."""
    if names is None or isinstance(names, range):
        return names
    if isinstance(names, set | frozenset):
        raise DataError(f"{name}: must be in the order of the columns, got a set; pass a list")
    named = as_names(names, name)
    warn_of_unnormalized(named.tolist(), name)
    different, counts = np.unique(named, return_counts=True)
    if len(different) < len(named):
        first = shorten(different[counts > 1].tolist()[0])
        warn(f"{name}: {first} names {counts[counts > 1][0]} columns, which answers do not tell apart")
    return named


def first_number(names: Sequence[Any] | Names) -> int:
    """Return the number of the first column: 1 if the names are the numbers from 1, else 0."""
    return int(len(names) > 0 and np.array_equal(names, np.arange(1, len(names) + 1)))


def with_new_names(known: Names, found: Sequence[Any], name: str) -> Names:
    """Return the names `known`, followed by those of `found` (Python values) that are new.

    Raises `DataError` if one are strings and the other numbers, which can never be equal.
    """
    before = python_values(known)
    strange = [label for label in found if before and isinstance(label, str) != isinstance(before[0], str)]
    if strange:
        kind, first = KINDS[type(before[0])], shorten(before[0])
        raise DataError(f"{name}: labels must be {kind}, as {first} seen before, got {shorten(strange[0])}")
    seen = set(before)
    new = [label for label in found if label not in seen]
    if not new:
        return known
    # NumPy strings become as wide as the longest name. Other arrays are created from the values again, without a cast.
    if isinstance(known, np.ndarray) and known.dtype.kind == "U":
        check_text(new, name)
        return np.concatenate([known, np.array(new)])
    return label_array(before + new, name)


def label_array(labels: list[Any], name: str) -> np.ndarray:
    """Return Python values of one type as an array of int64, uint64, float64, bool or, for strings, objects."""
    kinds = {type(label) for label in labels}
    for label in labels:
        if type(label) not in KINDS:
            raise DataError(f"{name}: a label must be an integer or a string, got {shorten(label)}")
    if len(kinds) > 1:
        first = labels[0]
        other = next(label for label in labels if type(label) is not type(first))
        raise DataError(
            f"{name}: labels must be all of one type, got {shorten(first)} and {shorten(other)}; strings suit all"
        )
    if kinds == {int}:
        return _integers(labels, name)
    if kinds != {str}:
        strange = [label for label in labels if not math.isfinite(label)]
        if strange:
            raise DataError(f"{name}: a label must be finite, got {strange[0]}")
        return np.array(labels)
    check_text(labels, name)
    return np.array(labels, dtype=object)


def check_text(labels: Iterable[str], name: str) -> None:
    """Raise `DataError` for text that UTF-8 cannot encode, with which a model could not be saved."""
    for label in labels:
        try:
            label.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{name}: a label must be text that UTF-8 can hold, got {shorten(label)}") from error


def warn_of_unnormalized(labels: Iterable[Any], name: str) -> None:
    """Warn of names that differ from those read from files, which are stripped and composed (NFC)."""
    names = [label for label in labels if isinstance(label, str)]
    if spaced := [label for label in names if label != label.strip()]:
        text = f"{name}: {len(spaced):,} of {len(names):,} labels begin or end with a space"
        remedy = "labels read from files do not, so that they would be other labels; pass label.strip()"
        warn(f"{text}, such as {shorten(spaced[0])}; {remedy}")
    for label in names:
        if not is_normalized("NFC", label):
            text = f"{name}: the label {label!a} is decomposed Unicode; labels read from files are composed, so that"
            warn(f"{text} they would be other labels; pass unicodedata.normalize('NFC', label)")
            return


def _integers(labels: list[int], name: str) -> np.ndarray:
    """Return integers as int64 or uint64; by itself NumPy may turn large ones into floats."""
    low, high = min(labels), max(labels)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return np.array(labels, dtype=dtype)
    raise DataError(
        f"{name}: integer labels must fit 64 bits, got {low} to {high}; pass strings, as in {shorten(str(high))}"
    )


def names_to_arrays(name: str, names: np.ndarray) -> dict[str, np.ndarray]:
    """Return names as arrays to save: numbers unchanged, strings as UTF-8 bytes with the end of each."""
    if names.dtype.kind not in "OU":
        return {name: names}
    texts = [str(text).encode() for text in names]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    wide = np.array([names.dtype.kind == "U"])
    return {f"{name}_text": np.frombuffer(b"".join(texts), np.uint8), f"{name}_ends": ends, f"{name}_fixed": wide}


@dataclass(frozen=True)
class MappedNames:
    """Names of a memory-mapped model, which become Python objects on first use: there may be millions."""

    name: str
    arrays: dict[str, np.ndarray]
    path: Path

    def __len__(self) -> int:
        for name in (self.name, f"{self.name}_ends"):
            if name in self.arrays:
                return self.arrays[name].size
        raise ModelFileError(f"{self.path}: {self.name} must be saved as numbers or as text")

    @cached_property
    def array(self) -> np.ndarray:
        """The names (L,), read on first use."""
        return names_from_arrays(self.name, self.arrays, self.path)


def names_from_arrays(name: str, arrays: dict[str, np.ndarray], path: Path) -> np.ndarray:
    """Return the names that `names_to_arrays` wrote."""
    if name in arrays:
        if arrays[name].ndim != 1 or arrays[name].dtype.kind not in "biuf":
            raise ModelFileError(f"{path}: {name} must be a list of numbers, got {arrays[name].dtype}")
        return np.array(arrays[name])
    text, ends, fixed = (arrays.get(f"{name}_{part}") for part in ("text", "ends", "fixed"))
    if text is None or ends is None or fixed is None or text.dtype != np.uint8 or ends.dtype != np.int64:
        raise ModelFileError(f"{path}: {name} must be saved as numbers or as text")
    if ends.ndim != 1 or np.any(ends < np.concatenate([[0], ends[:-1]])) or (len(ends) and ends[-1] != text.size):
        raise ModelFileError(f"{path}: {name}_ends must rise to the {text.size} bytes of {name}_text")
    blob = text.tobytes()
    try:
        names = [blob[start:end].decode() for start, end in itertools.pairwise([0, *ends.tolist()])]
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path}: {name} must be UTF-8, got {error}") from error
    return np.array(names, dtype=str if fixed.size and bool(fixed.flat[0]) else object)
