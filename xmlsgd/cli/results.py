"""What a verb leaves: files that appear whole or not at all, tables on stdout, JSON, notes on stderr."""

from __future__ import annotations

import io
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ..data.files import naming, whole_file
from .failures import STANDARD_OUTPUT
from .outputs import STDOUT

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence


def note(args: Namespace, text: str) -> None:
    """Tell a person at a terminal what happens; scripts and logs see nothing."""
    if not args.quiet and sys.stderr.isatty():
        print(text, file=sys.stderr)


def show(args: Namespace, text: str) -> None:
    """Print what came of a run that leaves something, unless stdout belongs to that or the user wants quiet."""
    if not args.quiet:
        answer(args, text)


def answer(args: Namespace, text: str) -> None:
    """Print what was asked for, quiet or not, unless stdout belongs to the JSON."""
    if STDOUT not in (getattr(args, "json", None), getattr(args, "out", None)):
        print(text)


@contextmanager
def text_file(path: str) -> Iterator[TextIO]:
    """Open a text file that takes its name when it is complete; `-` is stdout."""
    if path == STDOUT:
        with naming(STANDARD_OUTPUT):
            yield sys.stdout
        return
    with whole_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as stream:
        yield stream


def write_json(path: str | None, result: Mapping[str, Any]) -> None:
    """Write a result, if a file is asked for; numbers that are none become null."""
    if path is not None:
        with text_file(path) as stream:
            json.dump(plain(result), stream, indent=1, allow_nan=False)
            stream.write("\n")


def plain(value: Any) -> Any:
    """Return a value in the types of JSON."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and value - value != 0:
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def table(rows: Sequence[tuple[str, Mapping[str, float | None]]], columns: Sequence[str]) -> str:
    """Return lines of right-aligned numbers with two digits, below their columns."""
    cells = [[("-" if (v := values.get(c)) is None else f"{v:.2f}") for c in columns] for _, values in rows]
    return aligned([name for name, _ in rows], columns, cells)


def aligned(names: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return lines of names and right-aligned cells below their columns."""
    first = max((len(name) for name in names), default=0)
    widths = [max(9, 2 + max(map(len, column))) for column in zip(columns, *cells, strict=True)]
    lines = [
        f"{name:<{first}}" + "".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for name, row in zip(["", *names], [columns, *cells], strict=True)
    ]
    return "\n".join(line.rstrip() for line in lines)
