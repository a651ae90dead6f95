"""Options of reading documents; not in `documents`, so that the help of the command line needs no NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

# The formats of documents, and the suffixes of their files; the readers are in `documents`.
DOCUMENT_FORMATS: dict[str, tuple[str, ...]] = {
    "raw": (), "csv": (".csv",), "jsonl": (".jsonl", ".ndjson", ".json"), "annif": (), "fasttext": (),
}  # fmt: skip


@dataclass(frozen=True)
class DocumentOptions:
    """Options of reading documents.

    Parameters
    ----------
    text_column, label_column : str
        Columns of CSV, keys of JSON lines.
    label_separator : str
        Text between two labels, in raw text and CSV.
    vocabulary : str, optional
        An Annif vocabulary, `<uri><TAB>label` a line, whose labels stand for the URIs.
    names : dict of str to str, optional
        Known names of URIs, which those of the vocabulary do not replace.
    """

    text_column: str = "text"
    label_column: str = "labels"
    label_separator: str = ","
    vocabulary: str | None = None
    names: Mapping[str, str] | None = None

    @cached_property
    def names_of_uris(self) -> Mapping[str, str] | None:
        """The names of URIs: known ones, and those of the vocabulary, which is read once; None without both."""
        from .vocabulary import read_vocabulary

        return self.names if self.vocabulary is None else read_vocabulary(self.vocabulary, self.names)
