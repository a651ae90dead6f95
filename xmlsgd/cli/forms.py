"""Flags that say how data files are to be read, and a look at a file's first lines: raw text or rows of numbers."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
LINES_SEEN = 100
LINE_BYTES = 1 << 20
ENTRY = re.compile(r"-?\d*:")  # how an entry `feature:value` begins, also a broken one
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
    if args.format != "auto":
        return bool(args.format == "raw")
    file = Path(path)
    if not file.is_file() or file.suffix == ".npz":
        return False
    return any(_is_document(line, labelled) for line in _first_lines(file))


def _is_document(line: str, labelled: bool) -> bool:
    """Return whether a line has words where rows have only numbers and entries."""
    labels, tab, text = line.partition("\t")
    if labelled and not tab:
        return False
    words = (text if tab else labels).split()
    return any(not ENTRY.match(word) and not NUMBERS.fullmatch(word) for word in words)


def _first_lines(file: Path) -> list[str]:
    """Return the first lines of a file that may be packed, none where it cannot be read: its reader says why."""
    try:
        with OPENERS.get(file.suffix, open)(file, "rb") as stream:
            lines = [stream.readline(LINE_BYTES) for _ in range(LINES_SEEN)]
    except (OSError, EOFError, lzma.LZMAError):
        return []
    return [line.decode(errors="replace") for line in itertools.takewhile(bool, lines)]
