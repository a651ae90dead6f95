"""Read and write options of algorithms: `steps=8`, `outer=nesterov:0.9:0.7`, `sizes=256:1024`, `momentum=none`.

Colons separate the numbers of a field and those of an outer optimizer; `none` stands for None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, get_args, get_origin

from ..data.validation import field_types
from ..errors import DataError, shorten, suggest
from .outer import OUTERS, Outer

NONE, TRUE, FALSE = "none", "true", "false"
PUBLISHED = "published"  # in place of the first option: `Algorithm.published`
AUTO = "auto"  # stands for the algorithm that `choose_algorithm` returns; it has no options
# Fields that are no options, and the parameters of the estimator that set them.
SET_BY_PARAMETERS = {"batch": "batch_size", "learning_rate": "learning_rate_init"}


def read_options(of: type, name: str, options: Iterable[str]) -> dict[str, Any]:
    """Return the fields that options "field=value" set in the class `of`, which errors call `name`."""
    known = [field.name for field in fields(of) if field.name not in SET_BY_PARAMETERS]
    read: dict[str, Any] = {}
    for option in options:
        field, equals, text = (part.strip() for part in option.partition("="))
        if field not in known or field in read or not equals:
            listed = ", ".join(f"{field}=..." for field in known)
            has = f"has the options {listed}, each once" if known else "has no options"
            near = f"; pass {SET_BY_PARAMETERS[field]} instead" if field in SET_BY_PARAMETERS else suggest(field, known)
            raise DataError(f"algorithm: {name} {has}, got {shorten(option)}{'' if field in known else near}")
        read[field] = read_field(of, field, text)
    return read


def read_field(of: type, field: str, text: str) -> Any:
    """Return the value of a field of the class `of`, given as text; raise `DataError` if the text is none."""
    kind, or_none = field_types(of)[field]
    if or_none and text == NONE:
        return None
    try:
        return _read(kind, text)
    except ValueError as error:
        raise DataError(f"{field}: {error}") from None


def write_field(value: Any) -> Any:
    """Return a JSON value from which `value` can be restored, by `read_field` if it is a text."""
    if isinstance(value, Outer):
        names = [name for name, kind in OUTERS.items() if type(value) is kind]
        return ":".join([*names, *(str(getattr(value, field.name)) for field in fields(value))]) if names else value
    return str(value) if isinstance(value, float) and abs(value) == float("inf") else value


def _read(kind: Any, text: str) -> Any:
    """Return the value of type `kind` that a text describes; raise `ValueError` if it describes none."""
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], part) for part in text.split(":") if text)
    if kind is Outer:
        return _outer(text)
    if kind is bool:
        if text.lower() not in (TRUE, FALSE):
            raise ValueError(f"must be {TRUE} or {FALSE}, got {shorten(text)}")
        return text.lower() == TRUE
    if kind is str:
        return text
    if kind not in (int, float):
        wanted = getattr(kind, "__name__", kind)
        raise ValueError(f"must be a {wanted}, which no text describes, got {shorten(text)}; pass an Algorithm")
    try:
        return kind(text)
    except ValueError:
        apart = "; options are separated by /" if "," in text else ""
        raise ValueError(f"must be a {'whole ' * (kind is int)}number, got {shorten(text)}{apart}") from None


def _outer(text: str) -> Outer:
    """Return the outer optimizer that "name:number:number" describes; the numbers are its fields in order."""
    name, *numbers = text.split(":")
    if name not in OUTERS:
        raise ValueError(f"must be one of {', '.join(OUTERS)}, got {shorten(name)}{suggest(name, OUTERS)}")
    known = field_types(OUTERS[name])
    if len(numbers) > len(known):
        numbered = "1 number" if len(known) == 1 else f"{len(known)} numbers"
        raise ValueError(f"{name} has {numbered}, got {shorten(text)}")
    read = [_read(kind, number) for (kind, _), number in zip(known.values(), numbers, strict=False)]
    return OUTERS[name](*read)
