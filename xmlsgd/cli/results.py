"""Write results: files that appear when they are complete, JSON, CSV, tables, sizes of data."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ..data.files.atomic import atomic_file, compressed_by_name
from ..data.files.system_errors import disk_errors_named
from ..errors import counted
from .messages import STANDARD_OUTPUT, STDOUT

if TYPE_CHECKING:
    from ..data.csr import Dataset

COLUMNS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "R@5")  # of the table after training
SIGNIFICANT = "three digits"  # a format of numbers, see `significant`
UriOf = Callable[[str], "str | None"]


@contextmanager
def text_file(path: str) -> Iterator[TextIO]:
    """Open a text file that takes its name when it is complete, compressed if the name says so; `-` is stdout."""
    if path == STDOUT:
        with disk_errors_named(STANDARD_OUTPUT):
            yield sys.stdout
        return
    with (
        atomic_file(path) as raw,
        compressed_by_name(path, raw) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as stream,
    ):
        yield stream


def write_json(path: str | None, result: Mapping[str, Any]) -> None:
    """Write a result to a file, unless `path` is None; numbers that are not finite become null."""
    if path is not None:
        with text_file(path) as stream:
            json.dump(as_json(result), stream, indent=1, allow_nan=False)
            stream.write("\n")


def as_json(value: Any) -> Any:
    """Convert a value to types of JSON: NumPy scalars to numbers, NaN and infinity to None, other objects to text."""
    if isinstance(value, dict):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def table(rows: Mapping[str, Mapping[str, float | None]], columns: Sequence[str] | Mapping[str, str]) -> str:
    """Return a table of numbers with named rows; a mapping `columns` gives the format of each, else two digits."""
    formats = columns if isinstance(columns, dict) else dict.fromkeys(columns, ".2f")

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else significant(value) if form == SIGNIFICANT else f"{value:{form}}"

    cells = [[shown(row.get(name), form) for name, form in formats.items()] for row in rows.values()]
    return aligned(list(rows), list(columns), cells)


def significant(value: float) -> str:
    """Format a number with at least three significant digits: 0.00128, 45.2, 1,234,567."""
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    decimals = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}" if decimals < 8 else f"{value:.2e}"


def aligned(names: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table as text: a line of columns, then a line for each name with its right-aligned cells."""
    first = max((len(name) for name in names), default=0)
    widths = [max(9, 2 + max(map(len, column))) for column in zip(columns, *cells, strict=True)]
    lines = [
        f"{name:<{first}}" + "".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for name, row in zip(["", *names], [columns, *cells], strict=True)
    ]
    return "\n".join(line.rstrip() for line in lines)


def size_text(dataset: Dataset) -> str:
    """Return a data set's size in words."""
    per_row = dataset.X.nnz / max(dataset.n_rows, 1), dataset.Y.nnz / max(dataset.n_rows, 1)
    return (
        f"{counted(dataset.n_rows, 'row')}, {counted(dataset.n_features, 'feature')} ({per_row[0]:.1f} a row), "
        f"{counted(dataset.n_labels, 'label')} ({per_row[1]:.1f} a row)"
    )


def size_numbers(dataset: Dataset) -> dict[str, int]:
    """Return a data set's size as numbers for JSON."""
    return {
        "rows": dataset.n_rows, "features": dataset.n_features, "labels": dataset.n_labels,
        "nnz": dataset.X.nnz, "label_nnz": dataset.Y.nnz,
        "rows_without_label": int((dataset.Y.indptr[1:] == dataset.Y.indptr[:-1]).sum()),
    }  # fmt: skip


def names_with_uri(name: Any, uri_of: UriOf | None) -> list[Any]:
    """Return the cells of CSV for a name: itself, and with a vocabulary its URI, "" if it has none."""
    return [name] if uri_of is None else [name, uri_of(name) or ""]


def csv_line(cells: Sequence[Any]) -> str:
    """Return cells as a line of CSV, quoted if necessary."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\r\n").writerow(cells)  # before Python 3.13, only its characters are quoted
    return stream.getvalue().removesuffix("\r\n")
