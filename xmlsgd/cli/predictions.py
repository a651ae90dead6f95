"""How predicted labels are written: text, JSON or CSV, one line per row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..estimators.inference import Explanation

FORMATS = ("text", "json", "csv")
Line = Callable[[int, Sequence[int], Sequence[float]], str]  # of row number, labels best first, -1 for none, and values


def line_format(form: str, names: Sequence[Any], value: str, tabs: bool) -> Line:
    """Return what makes the line of a row.

    names : of the labels. value : what stands beside a label, "probability" or "score". tabs : whether tabs separate
    the entries of text, since names may contain blanks.
    """
    if form == "text":
        separator = "\t" if tabs else " "
        return lambda row, labels, values: separator.join(
            f"{names[j]}:{x:.6g}" for j, x in zip(labels, values, strict=True) if j >= 0
        )
    if form == "json":
        return lambda row, labels, values: json.dumps(
            {
                "row": row,
                "labels": [
                    {"label": names[j], value: float(f"{x:.6g}")} for j, x in zip(labels, values, strict=True) if j >= 0
                ],
            },
            ensure_ascii=False,
        )
    return lambda row, labels, values: csv_line(
        [row, *(cell for j, x in zip(labels, values, strict=True) for cell in csv_cells(names, j, x))]
    )


def explained(form: str, line: str, explanations: Sequence[Explanation]) -> str:
    """Return a line of text, or of JSON, with the explanations of its labels: below them, or beside each."""
    if form == "text":
        return "\n".join([line, *("  " + part for each in explanations for part in str(each).splitlines())])
    row = json.loads(line)
    for entry, each in zip(row["labels"], explanations, strict=True):
        entry["explanation"] = {name: value for name, value in each.to_dict().items() if name != "label"}
    return json.dumps(row, ensure_ascii=False)


def csv_cells(names: Sequence[Any], label: int, value: float) -> tuple[Any, str]:
    """Return the cells of a label, which stay empty where a row has no more."""
    return (names[label], f"{value:.6g}") if label >= 0 else ("", "")


def csv_header(k: int, value: str) -> str:
    """Return the first line of CSV with k labels a row."""
    return csv_line(["row", *(cell for rank in range(1, k + 1) for cell in (f"label_{rank}", f"{value}_{rank}"))])


def csv_line(cells: Sequence[Any]) -> str:
    """Return cells as a line of CSV, quoted where they need it."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow(cells)
    return stream.getvalue()
