"""Types of the values of flags: the name that the help shows, and how a text is read."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import suggest


@dataclass(frozen=True)
class ValueType:
    """The type of a flag's value: its name in the help and `read`, which raises `ArgumentTypeError` for a wrong text.

    `choices` are shown in the help.
    """

    name: str
    read: Callable[[str], Any]
    choices: tuple[str, ...] = ()


def _read_path(text: str) -> str:
    """Return the name of a file or folder; an empty one is usually a shell variable that was never set."""
    if not text:
        raise ArgumentTypeError("must be a name, got ''")
    return text


def _reader(convert: Callable[[str], Any], description: str) -> Callable[[str], Any]:
    """Return a reader that says what a value must be where `convert` raises `ValueError`."""

    def read(text: str) -> Any:
        try:
            return convert(text)
        except ValueError:
            raise ArgumentTypeError(f"must be {description}, got {text!r}") from None

    return read


def _read_minutes(text: str) -> float:
    """Return a finite number of minutes, 0 or more."""
    minutes = float(text)
    if not 0 <= minutes < math.inf:
        raise ValueError
    return minutes


PATH = ValueType("PATH", _read_path)
FILE = ValueType("FILE", _read_path)
DIR = ValueType("DIR", _read_path)
NAME = ValueType("NAME", str)
INT = ValueType("INT", _reader(int, "a whole number"))
FLOAT = ValueType("FLOAT", _reader(float, "a number"))
SIZES = ValueType(
    "INT,...",
    _reader(lambda text: tuple(map(int, text.split(","))), "whole numbers separated by commas, as in 512,256"),
)
MINUTES = ValueType(
    "MINUTES", _reader(_read_minutes, "minutes between two checkpoints, 0 or more (DIR.checkpoint holds them)")
)


def name_among(*choices: str) -> ValueType:
    """Return the type of a name that must be one of `choices`."""

    def read(text: str) -> str:
        if text not in choices:
            raise ArgumentTypeError(f"must be one of {', '.join(choices)}, got {text!r}{suggest(text, choices)}")
        return text

    return ValueType("NAME", read, choices)


def or_word(value_type: ValueType, *words: str) -> ValueType:
    """Return a type that takes some words besides its values, as in `auto`."""

    def read(text: str) -> Any:
        if text in words:
            return text
        try:
            return value_type.read(text)
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"{error}{suggest(text, words)}") from error

    return ValueType("|".join((value_type.name, *words)), read)
