"""Validate values and the fields of dataclasses: numbers and their ranges, strings, flags, choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import field, fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, shorten, suggest
from .frames import as_list, is_missing

FLOAT32_MAX = float(np.finfo(np.float32).max)  # kernels take numbers in float32


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or NumPy, but no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_positive_integer(value: object) -> bool:
    """Return whether a value is a positive integer."""
    return is_integer(value) and bool(value > 0)  # type: ignore[operator]


def is_number(value: object) -> bool:
    """Return whether a value is a real number, possibly infinite, that fits a float; not NaN, no bool."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return not math.isnan(float(value))
    except OverflowError:  # an integer of hundreds of digits
        return False


def check_unmasked(data: object, name: str) -> None:
    """Raise `DataError` for a masked array: NumPy would read its masked values, too."""
    if isinstance(data, np.ma.MaskedArray):
        raise DataError(f"{name}: masked arrays are not supported, got one; pass a plain array, as from filled(0)")


def check_no_index(data: Any, name: str, remedy: str) -> None:
    """Raise `DataError` for a Series of pandas with an index other than 0, 1, ..., as values are read by position."""
    if hasattr(data, "iloc") and not np.array_equal(data.index, np.arange(len(data))):
        raise DataError(f"{name}: is read by position, got a Series with an index; pass {remedy}, or series.tolist()")


def as_vector(values: object, size: int, name: str) -> np.ndarray:
    """Return real numbers, one for each of `size` labels, as float64 (L,); raise `DataError` for anything else."""
    check_unmasked(values, name)
    try:
        given = np.asarray(values)
    except ValueError:  # lists of different lengths
        given = np.empty(0, object)
    if given.dtype.kind not in "biuf" or given.shape != (size,):
        got = f"{len(given)} numbers" if given.dtype.kind in "biuf" and given.ndim == 1 else shorten(values)
        raise DataError(f"{name}: must have a number for each of {size} labels, got {got}")
    return given.astype(np.float64)


def all_items(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Return a function that tests whether a value is a tuple or list in which all items fit."""
    return lambda value: isinstance(value, tuple | list) and all(fits(item) for item in value)


# By annotation: the name of a type in errors, and its test. Fields with other annotations are not checked.
FIELD_TYPES: dict[Any, tuple[str, Callable[[object], bool]]] = {
    int: ("a whole number", is_integer),
    float: ("a number", is_number),
    str: ("a text", lambda value: isinstance(value, str)),
    bool: ("True or False", lambda value: isinstance(value, bool | np.bool_)),
    tuple[int, ...]: ("whole numbers", all_items(is_integer)),
    tuple[float, ...]: ("numbers", all_items(is_number)),
}


def field_types(of: type) -> dict[str, tuple[Any, bool]]:
    """Return the annotation of each field of a dataclass, without None, and whether it may be None.

    Annotations may be types, or texts if the module begins with `from __future__ import annotations`. A class with a
    text that names nothing at run time, as after `if TYPE_CHECKING`, is left out, but for fields of its bases.
    """
    found: dict[str, tuple[Any, bool]] = {}
    hints: dict[str, Any] = {}
    for base in reversed(of.__mro__):
        with suppress(NameError):
            hints |= get_type_hints(base)
    for name, hint in hints.items():
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        others = [kind for kind in kinds if kind is not NoneType]
        found[name] = others[0] if len(others) == 1 else hint, len(others) < len(kinds)
    return found


def ranged(default: Any, wanted: str, fits: Callable[[Any], bool]) -> Any:
    """Return a dataclass field for which `fits` must be true, of a tuple for each value; wanted : a text for errors."""
    return field(default=default, metadata={"wanted": wanted, "fits": fits})


def at_least(default: Any, least: int) -> Any:
    """Return a dataclass field that must be at least `least`; of a tuple, each value must be."""
    return ranged(default, f"at least {least}", lambda value: value >= least)


def above_zero(default: Any) -> Any:
    """Return a dataclass field that must be finite and above 0."""
    return ranged(default, "finite and above 0", lambda value: 0 < value < math.inf)


def below_one(default: Any) -> Any:
    """Return a dataclass field that must be in [0, 1)."""
    return ranged(default, "in [0, 1)", lambda value: 0 <= value < 1)


def within(default: Any, low: float, high: float) -> Any:
    """Return a dataclass field that must be in [low, high]."""
    return ranged(default, f"in [{low:g}, {high:g}]", lambda value: low <= value <= high)


def check_fields(made: Any) -> None:
    """Raise `DataError` if a field of a dataclass is not of its annotated type, or not in its range."""
    types = field_types(type(made))
    for each in fields(made):
        (kind, or_none), value = types.get(each.name, (None, True)), getattr(made, each.name)
        if kind not in FIELD_TYPES or (or_none and value is None):
            continue
        wanted, fits = FIELD_TYPES[kind]
        if fits(value):
            wanted, fits = each.metadata.get("wanted", ""), each.metadata.get("fits", lambda value: True)
            if all(fits(one) for one in (value if isinstance(value, tuple | list) else [value])):
                continue
        raise DataError(f"{each.name} must be {wanted}{' or None' if or_none else ''}, got {shorten(value)}")


class Checked:
    """Base of dataclasses that check their fields when they are created."""

    def __post_init__(self) -> None:
        """Raise `DataError` for fields of the wrong type and for numbers outside their ranges."""
        check_fields(self)


def check_instance(name: str, value: object, kind: type, example: str, or_none: bool = True) -> None:
    """Raise `DataError` unless a value is an instance of `kind`, or None if `or_none`; example : for the error."""
    if not isinstance(value, kind) and not (or_none and value is None):
        wanted = f"{'None or ' if or_none else ''}a {kind.__name__}"
        raise DataError(f"{name} must be {wanted} such as {example}, got {shorten(value)}")


def check_choice(name: str, given: object, options: Collection[str], others: str = "", hint: str = "") -> None:
    """Raise `DataError` unless a value is one of the options.

    The error suggests the nearest option, or ends with `hint` if none is near. others : other possible values, for the
    error.
    """
    if not isinstance(given, str) or given not in options:
        got = f"{shorten(given)}{suggest(given, options) or hint}"
        raise DataError(f"{name} must be one of {', '.join(options)}{others}, got {got}")


def named_groups(groups: Any, n_rows: int, others: str = "") -> tuple[NDArray, NDArray[np.int64]]:
    """Return the names of the groups, ascending, and the number of the group of each row, int64 (n,).

    others : other possible values, for the error.
    """
    check_unmasked(groups, "groups")
    listed = as_list(groups)
    given = np.asarray(listed)
    if not isinstance(listed, np.ndarray) or given.dtype.kind == "O":
        for row, group in enumerate(listed if given.ndim == 1 else ()):
            if is_missing(group):
                raise DataError(f"groups: must not be missing, got {group!r} in row {row}; give it a group of its own")
    if given.shape != (n_rows,) or given.dtype.kind not in "iuUOSb":
        wanted = f"must have a text or an integer for each of {n_rows} rows{others}"
        raise DataError(f"groups: {wanted}, got {shorten(groups)}")
    if given.dtype.kind in "US" and not all(isinstance(group, str | bytes) for group in listed):
        raise DataError(f"groups: must be all texts or all integers, got {shorten(groups)}")
    try:
        names, of_row = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise DataError(f"groups: must be all texts or all integers, got {shorten(groups)}") from error
    return names, of_row.astype(np.int64)
