"""What a command leaves: files that appear whole or not at all, JSON, tables and sizes of data."""

from __future__ import annotations

import io
import json
import math
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ..data.files.atomic import atomic_file
from ..data.files.temporary import disk_errors_named
from .messages import STANDARD_OUTPUT, STDOUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..data.csr import Dataset

SIGNIFICANT = "three digits"  # a format of numbers


@contextmanager
def text_file(path: str) -> Iterator[TextIO]:
    """Open a text file that takes its name when it is complete; `-` is stdout."""
    if path == STDOUT:
        with disk_errors_named(STANDARD_OUTPUT):
            yield sys.stdout
        return
    with atomic_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as stream:
        yield stream


def write_json(path: str | None, result: Mapping[str, Any]) -> None:
    """Write a result if a file is asked for; numbers that are not finite become null."""
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


def table(rows: Mapping[str, Mapping[str, float | None]], columns: Sequence[str] | Mapping[str, str]) -> str:
    """Return named rows of numbers below their columns; a mapping gives each column's format, by default two digits."""
    formats = columns if isinstance(columns, dict) else dict.fromkeys(columns, ".2f")
    cells = [[format_number(row.get(name), form) for name, form in formats.items()] for row in rows.values()]
    return aligned(list(rows), list(columns), cells)


def format_number(value: float | None, form: str) -> str:
    """Return a number in a format, a dash for none."""
    if value is None:
        return "-"
    return significant(value) if form == SIGNIFICANT else f"{value:{form}}"


def significant(value: float) -> str:
    """Return a number with at least three significant digits: 0.00128, 45.2, 1,234,567."""
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    decimals = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}" if decimals < 8 else f"{value:.2e}"


def aligned(names: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return lines of names and right-aligned cells below their columns."""
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
        f"{dataset.n_rows:,} rows, {dataset.n_features:,} features ({per_row[0]:.1f} a row), "
        f"{dataset.n_labels:,} labels ({per_row[1]:.1f} a row)"
    )


def size_numbers(dataset: Dataset) -> dict[str, int]:
    """Return a data set's size as numbers for JSON."""
    return {
        "rows": dataset.n_rows, "features": dataset.n_features, "labels": dataset.n_labels,
        "nnz": dataset.X.nnz, "label_nnz": dataset.Y.nnz,
        "rows_without_label": int((dataset.Y.indptr[1:] == dataset.Y.indptr[:-1]).sum()),
    }  # fmt: skip
