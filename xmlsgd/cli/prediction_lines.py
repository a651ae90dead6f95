"""The lines that `predict` writes: text, JSON or CSV."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .messages import ESCAPED
from .results import UriOf, csv_line, names_with_uri

if TYPE_CHECKING:
    from ..estimators.inference.explanation import Explanation

FORMATS = ("text", "json", "csv")
RowId = Mapping[str, Any]  # the number of the row, "row", and its identifier, "id", if it was asked for
# A function of these, labels (best first, -1 for none), their values, and their explanations (may be empty).
Line = Callable[[RowId, Sequence[int], Sequence[float], "Sequence[Explanation]"], str]


def line_format(form: str, names: Sequence[Any], value: str, tabs: bool, uri_of: UriOf | None = None) -> Line:
    """Return the function that formats a row of predictions as a line of "text", "json" or "csv".

    names : of the labels. value : name of the number of each label, "probability" or "score". tabs : whether tabs
    separate the entries of text, since names may contain spaces; text has escapes for control characters. uri_of :
    return the URI of a name, or None, for JSON and CSV. An identifier comes first in a line of text, before a tab.
    Explanations are printed below a line of text, and in JSON with their label; CSV leaves them out.
    """

    def text_line(row_id: RowId, labels: Sequence[int], values: Sequence[float], why: Sequence[Explanation]) -> str:
        entries = (f"{str(names[j]).translate(ESCAPED)}:{x:.6g}" for j, x in zip(labels, values, strict=True) if j >= 0)
        line = ("\t" if tabs else " ").join(entries)
        if "id" in row_id:
            line = f"{str('' if row_id['id'] is None else row_id['id']).translate(ESCAPED)}\t{line}"
        return "\n".join([line, *("  " + part.translate(ESCAPED) for each in why for part in str(each).split("\n"))])

    def json_line(row_id: RowId, labels: Sequence[int], values: Sequence[float], why: Sequence[Explanation]) -> str:
        entries: list[dict[str, Any]] = [
            {"label": names[j], **({} if uri_of is None else {"uri": uri_of(names[j])}), value: float(f"{x:.6g}")}
            for j, x in zip(labels, values, strict=True)
            if j >= 0
        ]
        if why:
            for entry, each in zip(entries, why, strict=True):
                entry["explanation"] = {name: part for name, part in each.to_dict().items() if name != "label"}
        return json.dumps({**row_id, "labels": entries}, ensure_ascii=False)

    def line_of_csv(row_id: RowId, labels: Sequence[int], values: Sequence[float], why: Sequence[Explanation]) -> str:
        pairs = zip(labels, values, strict=True)
        return csv_line([*row_id.values(), *(cell for pair in pairs for cell in csv_cells(names, *pair, uri_of))])

    return {"text": text_line, "json": json_line, "csv": line_of_csv}[form]


def csv_cells(names: Sequence[Any], label: int, value: float, uri_of: UriOf | None) -> list[Any]:
    """Return the cells of a label; they are empty for label -1."""
    named = names_with_uri(names[label] if label >= 0 else "", uri_of)
    return [*named, f"{value:.6g}" if label >= 0 else ""]


def csv_header(k: int, value: str, with_uris: bool, with_ids: bool) -> str:
    """Return the header of CSV with k labels per row."""
    columns = ("label", "uri", value) if with_uris else ("label", value)
    return csv_line(
        ["row", *(["id"] if with_ids else []), *(f"{column}_{rank}" for rank in range(1, k + 1) for column in columns)]
    )
