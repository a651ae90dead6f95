"""Flags that say how data files are to be read, and a look at a file's first lines: raw text or rows of numbers."""

from __future__ import annotations

import itertools
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import BROKEN_STREAM, open_packed
from ..errors import DataError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

LINES_SEEN = 100
LINE_BYTES = 1 << 20
ENTRY = re.compile(r"-?\d*:")  # how an entry `feature:value` begins, also a broken one
VALUE = re.compile(r":[-+.\d]")  # of an entry whose index may be broken
SPACES_WITHIN = re.compile(r"\S(?: {2,}|\\t)\S")  # where an editor has put spaces for a tab, or a program its name
SPACES = "; between labels and text stands one tab, not spaces"
NUMBERS = re.compile(r"[-+\d.,]*")  # labels, or a part of the header


def add_source_arguments(parser: ArgumentParser) -> None:
    """Add the flags of everything that reads rows."""
    group = parser.add_argument_group("how to read")
    group.add_argument(
        "--format", choices=("auto", "rows", "raw"), default="auto", help="rows of numbers or raw text; auto looks"
    )
    group.add_argument("--one-based", action="store_true", help="features count from 1, as in LIBSVM files")
    group.add_argument("--one-based-labels", action="store_true", help="labels count from 1")
    group.add_argument("--header", choices=("auto", "yes", "no"), default="auto", help="first line holds the shape")
    group.add_argument("--duplicates", choices=("error", "sum"), default="error", help="of a feature within a row")


def row_options(args: Namespace) -> dict[str, Any]:
    """Return the options of `read_libsvm` that the flags ask for."""
    return {
        "zero_based": not args.one_based,
        "zero_based_labels": not args.one_based_labels,
        "header": {"auto": "auto", "yes": True, "no": False}[args.header],
        "duplicates": args.duplicates,
    }


def is_raw_text(path: str, args: Namespace, labelled: bool) -> bool:
    """Return whether a file holds documents and not rows of numbers, by `--format` or by its first lines.

    With `labelled`, documents stand behind a tab: `label1,label2<TAB>text`.
    """
    file = Path(path)
    seen = file.is_file() and file.suffix != ".npz"
    return is_document(first_lines(file) if seen else (), args, labelled)


@contextmanager
def texts_told(path: str, args: Namespace) -> Iterator[None]:
    """Say of a file of texts without labels that it is one, where it could not be read as rows."""
    try:
        yield
    except DataError as error:
        from ..data.libsvm_parse import CSV, is_csv

        lines = first_lines(Path(path)) if Path(path).is_file() else []
        if not is_raw_text(path, args, labelled=False) or any(map(VALUE.search, lines)):
            raise
        want = "rows of numbers, or labels and a tab before each text, `label1,label2<TAB>text`"
        hint = SPACES if all(map(SPACES_WITHIN.search, lines)) else CSV if any(map(is_csv, lines)) else ""
        raise DataError(f"{path}: must hold {want}, got texts without labels{hint}") from error


def is_document(lines: Iterable[str], args: Namespace, labelled: bool) -> bool:
    """Return whether the first lines of something are documents, as `is_raw_text` says.

    A tab with words behind it is in no row of numbers, but words alone may be a broken row: then most lines decide.
    """
    if args.format != "auto":
        return bool(args.format == "raw")
    found = [_has_words(line, labelled) for line in lines if line.partition("#")[0].strip()]
    return any(found) if labelled else 2 * sum(found) > len(found)


def first_lines(file: Path) -> list[str]:
    """Return the first lines of a file that may be packed, none where it cannot be read: its reader says why."""
    try:
        with open_packed(file) as stream:
            lines = [stream.readline(LINE_BYTES) for _ in range(LINES_SEEN)]
    except BROKEN_STREAM:
        return []
    return [line.decode(errors="replace") for line in itertools.takewhile(bool, lines)]


def are_labelled(lines: Iterable[str]) -> bool:
    """Return whether documents have labels before a tab: at least half of them; a tab in a few is part of the text."""
    found = [_has_words(line, labelled=True) for line in lines if line.strip()]
    return any(found) and 2 * sum(found) >= len(found)


def _has_words(line: str, labelled: bool) -> bool:
    """Return whether a line has words where rows have only numbers and entries."""
    labels, tab, text = line.rstrip().partition("\t")
    if labelled and not tab:
        return False
    words = (text if tab else labels).partition("#")[0].split()
    return any(not ENTRY.match(word) and not NUMBERS.fullmatch(word) for word in words)
