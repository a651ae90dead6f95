"""The formats of documents: their options, and how they are recognized by the name or the first lines of a file.

The readers are in `documents`; this module needs no NumPy, as the help of the command line lists the formats.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import DataError
from .files.reading import COMPRESSED_SUFFIXES, READ_ERRORS, open_text
from .files.system_errors import raise_system_error

# The formats, and the suffixes of their files. A file of another suffix is recognized by its first lines.
DOCUMENT_FORMATS: dict[str, tuple[str, ...]] = {
    "raw": (), "csv": (".csv",), "jsonl": (".jsonl", ".ndjson", ".json"), "annif": (), "fasttext": (),
}  # fmt: skip
LINES_SEEN = 100  # first lines that are looked at
LINE_BYTES = 1 << 20  # read of each of them
DELIMITERS = ",;\t"  # of CSV; spreadsheets write semicolons where the comma is the decimal mark
URIS = re.compile(r"\s*(<[^<>\s]+>\s*)+")  # of an Annif corpus
LABEL_PREFIX = "__label__"  # of fastText
ENTRY = re.compile(r"-?\d*:")  # the beginning of an entry `feature:value`, also of a broken one
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?')  # what Excel writes and reads before the header
NUMBERS = re.compile(r"[-+\d.,]*")  # labels, or a word of the header


@dataclass(frozen=True)
class DocumentOptions:
    """Options of reading documents.

    Parameters
    ----------
    text_column, label_column : str
        Columns of CSV, keys of JSON lines. `text_column` may name several, separated by commas; their texts are
        joined by spaces.
    label_separator : str
        Text between two labels, in raw text and CSV.
    vocabulary : str, optional
        An Annif vocabulary, `<uri><TAB>label` a line, whose labels stand for the URIs.
    id_column : str, optional
        Column of CSV, key of JSON lines, with the identifier of each document.
    names : dict of str to str, optional
        Known names of URIs, which those of the vocabulary do not replace.
    """

    text_column: str = "text"
    label_column: str = "labels"
    label_separator: str = ","
    vocabulary: str | None = None
    id_column: str | None = None
    names: Mapping[str, str] | None = None

    @cached_property
    def names_of_uris(self) -> Mapping[str, str] | None:
        """The names of URIs: known ones, and those of the vocabulary, which is read once; None without both."""
        from .vocabulary import read_vocabulary

        return self.names if self.vocabulary is None else read_vocabulary(self.vocabulary, self.names)


def first_lines(file: Path) -> list[str]:
    """Return the first lines of a file, which may be compressed; none if it cannot be read: its reader will say why."""
    try:
        with open_text(file) as stream:
            lines = [stream.readline(LINE_BYTES) for _ in range(LINES_SEEN)]
    except (*READ_ERRORS, DataError) as error:
        raise_system_error(error, file)
        return []
    return [line.decode(errors="replace") for line in itertools.takewhile(bool, lines)]


def format_by_name(path: Path) -> str | None:
    """Return the format of documents that a file has by its suffix; None if the suffix tells none."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED_SUFFIXES]
    return next((name for name, ends in DOCUMENT_FORMATS.items() if suffixes and suffixes[-1].lower() in ends), None)


def format_by_lines(lines: Iterable[str], options: DocumentOptions) -> str | None:
    """Return the format of documents that the first lines of a file show; None if they may be raw text or rows.

    A first line with one of both column names may be raw text, unless the column of texts has another name than usual.
    """
    lines = [line for line in lines if line.strip()]
    first = lines[0].removeprefix("\ufeff") if lines else ""
    if SEPARATOR_LINE.fullmatch(first.rstrip("\r\n")):
        return "csv"
    mark = delimiter_of(first, options.text_column)
    is_named = options.text_column != DocumentOptions.text_column
    if mark and (is_named or delimiter_of(first, options.label_column) == mark):
        return "csv"
    if is_json_object(first):
        return "jsonl"  # its reader tells of missing keys
    if are_fasttext(lines):
        return "fasttext"
    without_subjects = all(line.strip(" \r\n").endswith("\t") for line in lines)
    if without_subjects and any(has_words(line, labelled=False) for line in lines):
        return "annif"  # as raw text these would be labels without texts
    return "annif" if are_annif(lines) or are_annif(lines[1:]) else None  # its reader tells of a header


def are_raw_text(lines: Iterable[str], labelled: bool) -> bool:
    """Return whether lines are raw text and not numeric features.

    With `labelled`, a document comes after a tab: `label1,label2<TAB>text`. No row of numeric features has words after
    a tab, so that one such line decides. Without `labelled`, words may also be a broken row, so that most lines decide.
    """
    found = [has_words(line, labelled) for line in lines if line.partition("#")[0].strip()]
    return any(found) if labelled else 2 * sum(found) > len(found)


def most_have_labels(lines: Iterable[str]) -> bool:
    """Return whether half of the lines or more have labels before a tab; else tabs are part of the texts."""
    found = [has_words(line, labelled=True) for line in lines if line.strip()]
    return any(found) and 2 * sum(found) >= len(found)


def has_words(line: str, labelled: bool) -> bool:
    """Return whether a line has words that cannot be part of a row of numeric features."""
    labels, tab, text = line.rstrip().partition("\t")
    if labelled and not tab:
        return False
    words = (text if tab else labels).partition("#")[0].split()
    return any(not ENTRY.match(word) and not NUMBERS.fullmatch(word) for word in words)


def are_annif(lines: Sequence[str]) -> bool:
    """Return whether lines are an Annif corpus; some may end with the tab, without subjects, but not all."""
    ends = [line.rpartition("\t")[1:] for line in lines]
    subjects = [end for _, end in ends if end.strip()]
    return bool(subjects) and all(tab for tab, _ in ends) and all(map(URIS.fullmatch, subjects))


def are_fasttext(lines: Iterable[str]) -> bool:
    """Return whether lines are of fastText: at least one begins with a label."""
    return any(line.startswith(LABEL_PREFIX) and len(line.split()[0]) > len(LABEL_PREFIX) for line in lines)


def split_columns(columns: str, known: Container[str]) -> list[str]:
    """Return the names in `a,b`; one name if `known`, a header or the keys of an object, has it with the comma."""
    if columns in known:
        return [columns]
    return [name if name in known else name.strip() for name in columns.split(",")]


def delimiter_of(header: str, columns: str) -> str | None:
    """Return the character that separates the columns of a header of several, if it has `columns`; else None."""
    for mark in DELIMITERS:
        try:
            fields = next(csv.reader([header], delimiter=mark), [])
        except csv.Error:  # the reader of the file will report it
            continue
        if len(fields) > 1 and set(split_columns(columns, fields)) <= set(fields):
            return mark
    return None


def is_json_object(line: str) -> bool:
    """Return whether a line is a JSON object."""
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
