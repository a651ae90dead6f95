"""How predicted labels are written: text, JSON or CSV, one line per row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..estimators.inference.explanation import Explanation

FORMATS = ("text", "json", "csv")
# Of row number, labels best first, -1 for none, values, and explanations of the labels, possibly none (not for CSV).
Line = Callable[[int, Sequence[int], Sequence[float], "Sequence[Explanation]"], str]


def line_format(form: str, names: Sequence[Any], value: str, tabs: bool) -> Line:
    """Return what makes the line of a row.

    names : of the labels. value : what stands beside a label, "probability" or "score". tabs : whether tabs separate
    the entries of text, since names may contain blanks. Explanations stand below a line of text, and in JSON beside
    their label.
    """

    def text_line(row: int, labels: Sequence[int], values: Sequence[float], why: Sequence[Explanation]) -> str:
        entries = (f"{names[j]}:{x:.6g}" for j, x in zip(labels, values, strict=True) if j >= 0)
        line = ("\t" if tabs else " ").join(entries)
        return "\n".join([line, *("  " + part for each in why for part in str(each).splitlines())])

    def json_line(row: int, labels: Sequence[int], values: Sequence[float], why: Sequence[Explanation]) -> str:
        entries: list[dict[str, Any]] = [
            {"label": names[j], value: float(f"{x:.6g}")} for j, x in zip(labels, values, strict=True) if j >= 0
        ]
        if why:
            for entry, each in zip(entries, why, strict=True):
                entry["explanation"] = {name: part for name, part in each.to_dict().items() if name != "label"}
        return json.dumps({"row": row, "labels": entries}, ensure_ascii=False)

    def line_of_csv(row: int, labels: Sequence[int], values: Sequence[float], why: Sequence[Explanation]) -> str:
        return csv_line([row, *(cell for pair in zip(labels, values, strict=True) for cell in csv_cells(names, *pair))])

    return {"text": text_line, "json": json_line, "csv": line_of_csv}[form]


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
