"""Documents with labels in the formats of other programs: CSV, JSON lines, and the corpora of Annif."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError, shorten
from .text import RawText, check_distinct, lines_of_file, names_of, read_raw_text, split_labels

SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
KINDS = ("raw", "csv", "jsonl", "annif")
URI = re.compile(r"<([^<>\s]+)>")
URIS = re.compile(r"\s*(<[^<>\s]+>\s*)+")
MAX_FIELD = 1 << 26  # characters of a field of CSV


@dataclass(frozen=True)
class DocumentOptions:
    """How documents are read.

    text_column, label_column : of CSV, and keys of JSON lines. separator : between labels of raw text and CSV.
    vocabulary : an Annif vocabulary, `<uri><TAB>label` a line, whose labels stand for the URIs.
    """

    text_column: str = "text"
    label_column: str = "labels"
    separator: str = ","
    vocabulary: str | None = None


def kind_of(path: Path) -> str | None:
    """Return the kind of documents that the name of a file tells, None where it tells none."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".bz2", ".xz")]
    return SUFFIXES.get(suffixes[-1].lower()) if suffixes else None


def is_annif(line: str) -> bool:
    """Return whether a line reads `text<TAB><uri> <uri>`."""
    _, tab, subjects = line.rpartition("\t")
    return bool(tab and URIS.fullmatch(subjects))


def read_documents(path: str | Path, kind: str, labelled: bool, options: DocumentOptions) -> RawText:
    """Read documents of one of `KINDS`; of a file without labels none are read, unless `labelled`.

    Raises `DataError` with file and line for what is not as its kind says.
    """
    path = Path(path)
    if kind == "raw":
        return read_raw_text(path, labelled=labelled, separator=options.separator)
    rows = {"csv": _csv_rows, "jsonl": _json_rows, "annif": _annif_rows}[kind](path, labelled, options)
    texts: list[str] = []
    labels: list[tuple[str, ...]] = []
    for text, names in rows:
        texts.append(text)
        labels.append(tuple(dict.fromkeys(names)))
    if not texts:
        raise DataError(f"{path}: must hold at least one document, got none")
    return RawText(texts, labels if labelled else None)


def _csv_rows(path: Path, labelled: bool, options: DocumentOptions) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield texts and labels of a CSV file with a header."""
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader((f"{line}\n" for line in lines_of_file(path)), strict=True)
    try:
        header = next(reader, [])
        text = _column(path, header, options.text_column, "--text-column")
        label = _column(path, header, options.label_column, "--label-column") if labelled else 0
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                got = f"got {len(row)}; quote fields with commas"
                raise DataError(f"{path}:{reader.line_num}: must have {len(header)} fields, as the header, {got}")
            yield row[text], names_of(row[label], options.separator) if labelled else ()
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: must be CSV, got {error}") from error


def _column(path: Path, header: list[str], name: str, flag: str) -> int:
    if name not in header:
        raise DataError(f"{path}:1: the header must have a column {name!r}, got {shorten(header)}; pass {flag}")
    return header.index(name)


def _json_rows(path: Path, labelled: bool, options: DocumentOptions) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield texts and labels of JSON lines, `{"text": "...", "labels": ["a", "b"]}`."""
    for number, line in enumerate(lines_of_file(path), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: must be a JSON object, got {error}") from error
        text = _value(entry, options.text_column, "--text-column", where)
        if not isinstance(text, str):
            raise DataError(f"{where}: {options.text_column!r} must be a string, got {shorten(text)}")
        labels = _value(entry, options.label_column, "--label-column", where) if labelled else []
        if not isinstance(labels, list) or not all(isinstance(name, str) and name.strip() for name in labels):
            raise DataError(f"{where}: {options.label_column!r} must be a list of strings, got {shorten(labels)}")
        yield text, tuple(labels)


def _value(entry: Any, name: str, flag: str, where: str) -> Any:
    if not isinstance(entry, dict) or name not in entry:
        raise DataError(f"{where}: must be an object with the key {name!r}, got {shorten(entry)}; pass {flag}")
    return entry[name]


def _annif_rows(path: Path, labelled: bool, options: DocumentOptions) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield texts and labels of an Annif corpus, `text<TAB><uri> <uri>` a line."""
    names = {} if options.vocabulary is None else _read_vocabulary(Path(options.vocabulary))
    for number, line in enumerate(lines_of_file(path), 1):
        if not line.strip():
            continue
        text, tab, subjects = line.rpartition("\t")
        if labelled and (not tab or (subjects.strip() and not URIS.fullmatch(subjects))):
            raise DataError(f"{path}:{number}: must read `text<TAB><uri> <uri>`, got {shorten(line)}")
        if not labelled and not is_annif(line):
            text, subjects = line, ""
        yield text, tuple(names.get(uri, uri) for uri in URI.findall(subjects))


def _read_vocabulary(path: Path) -> dict[str, str]:
    """Return the label of each URI of an Annif vocabulary."""
    names: dict[str, str] = {}
    for number, line in enumerate(lines_of_file(path), 1):
        uri, label = split_labels(line, f"{path}:{number}") if line.strip() else ("", "")
        found = URI.fullmatch(uri.strip())
        if line.strip() and (found is None or not label.strip()):
            raise DataError(f"{path}:{number}: must read `<uri><TAB>label`, got {shorten(line)}")
        if found is not None:
            names[found[1]] = label.partition("\t")[0].strip()
    check_distinct(list(names.values()), str(path))
    return names
