"""How documents are read; apart from `documents`, since the help of the command line needs no NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DocumentOptions:
    """How documents are read.

    Parameters
    ----------
    text_column, label_column : str
        Columns of CSV, keys of JSON lines.
    label_separator : str
        What stands between labels of raw text and CSV.
    vocabulary : str, optional
        An Annif vocabulary, `<uri><TAB>label` a line, whose labels stand for the URIs.
    names : dict of str to str, optional
        Names of URIs that are known already, and stay.
    """

    text_column: str = "text"
    label_column: str = "labels"
    label_separator: str = ","
    vocabulary: str | None = None
    names: Mapping[str, str] | None = None
