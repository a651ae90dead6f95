"""Names of labels: their normal form, lists of them in one field, and their columns."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..errors import DataError, shorten
from .csr import CSR, indicator

QUOTED = r'\s*"((?:[^"]|"")*)"\s*'  # a name in quotes; a quote in the name is written twice
URI = r"(?:<[^<>\s]+>|[A-Za-z][A-Za-z0-9+.-]*://\S+)"
SEVERAL_URIS = re.compile(rf"{URI}(?:\s+{URI})+")


def composed(text: str) -> str:
    """Return a text in NFC, in which a letter with an accent is one character, so that equal names compare equal."""
    return unicodedata.normalize("NFC", text)


def label_name(text: str) -> str:
    """Return the name of a label in NFC and without spaces at its ends, so that equal names compare equal."""
    return composed(text.strip())


def split_labels(field: str, separator: str) -> tuple[str, ...]:
    """Return the distinct label names of a field such as `a,"b, c",d`, in order.

    As in CSV, a name in quotes may contain the separator, here a comma; the quotes are removed. URIs may be separated
    by spaces, too, as in the corpora of Annif.
    """
    parts = field.split(separator)
    if '"' in field and '"' not in separator:
        end = rf"(?:{re.escape(separator)}|\Z)"
        found = re.findall(rf"{QUOTED}{end}|(.*?){end}", field, re.DOTALL)
        parts = [quoted.replace('""', '"') or plain for quoted, plain in found]
    names = [name for part in parts if (name := label_name(part))]
    return tuple(dict.fromkeys(each for name in names for each in _uris_or_name(name)))


def _uris_or_name(name: str) -> list[str]:
    return name.split() if SEVERAL_URIS.fullmatch(name) else [name]


def index_labels(labels: Iterable[Sequence[str]], names: Sequence[str] | None = None) -> tuple[CSR, list[str]]:
    """Return Y (n, L) with ones, and the L label names; labels : the names of each row.

    Without `names`, the columns are all names (`sorted_names`). Otherwise they are `names`, then further names of the
    rows, so that test rows keep labels that were never trained.
    """
    rows, known = [set(row) for row in labels], list(names or ())
    columns = known + sorted_names(set[str]().union(*rows).difference(known))
    index = {name: column for column, name in enumerate(columns)}
    return indicator(rows, index), columns


def sorted_names(names: Collection[str]) -> list[str]:
    """Return names in alphabetical order, or in numerical order if all are whole numbers, as ids of labels are."""
    by_length = are_numbers(names)
    return sorted(names, key=lambda name: (len(name) if by_length else 0, name))  # int() refuses very long ones


def are_numbers(names: Iterable[str]) -> bool:
    """Return whether all names are whole numbers."""
    return all(name.isdecimal() for name in names)


def check_distinct(names: Sequence[str], where: str) -> None:
    """Raise `DataError` if a label name occurs twice: nobody could tell which of the two labels is meant."""
    seen: dict[str, int] = {}
    for line, name in enumerate(names, 1):
        first = seen.setdefault(name, line)
        if first != line:
            raise DataError(f"{where}: label names must differ, got {shorten(name)} on lines {first} and {line}")


def columns_by_name(names: Sequence[Any], wanted: Iterable[Any], where: str, remedy: str) -> dict[Any, int]:
    """Return the column of each name; raise `DataError` if a name in `wanted` names several columns.

    where, remedy : begin and end of the error message.
    """
    columns = {label: column for column, label in enumerate(names)}
    if len(columns) < len(names):
        counts = Counter(names)
        for label in wanted:
            if counts[label] > 1:
                got = f"{shorten(label)}, which names {counts[label]}"
                raise DataError(f"{where}: a label must name one column, got {got}; {remedy}")
    return columns
