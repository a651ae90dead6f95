"""Read documents with labels: raw text, CSV, JSON lines, corpora of Annif and of fastText."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError, nor_others, shorten, suggest, warn
from .document_formats import (
    DELIMITERS,
    LABEL_PREFIX,
    SEPARATOR_LINE,
    URIS,
    DocumentOptions,
    are_annif,
    delimiter_of,
    split_columns,
)
from .label_names import composed, label_name, split_labels
from .text import Documents, lines_of_file, numbered_lines, read_raw_text
from .validation import check_choice, is_integer
from .vocabulary import BRACKETED_URI, is_uri, label_of, name_of
from .words import SURROGATE

DEFAULTS = DocumentOptions()
QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
ONE_OBJECT, AS_LINES = "must be one JSON object a line", "`jq -c '.[]' FILE` writes a list in lines"
SHOWN = 400  # characters of names of columns in an error
EMPTY_JSON = {"text_column": '""', "label_column": "[]", "id_column": "null"}
MAX_FIELD = 1 << 26  # characters of a field of CSV


class Row(NamedTuple):
    """A document: the number of its line, its text, its labels and its identifier."""

    line: int
    text: str
    labels: tuple[str, ...]
    id: str | int | None = None


def read_documents(
    path: str | Path, format: str, labelled: bool = True, options: DocumentOptions = DEFAULTS
) -> Documents:
    """Read documents, with or without labels.

    Parameters
    ----------
    path : str or path
        The file, which may be compressed.
    format : {"raw", "csv", "jsonl", "annif", "fasttext"}
        Raw text, CSV with a header, JSON lines, or a corpus of Annif or fastText.
    labelled : bool
        Whether the documents have labels that are to be read.
    options : DocumentOptions
        Names of columns, separator of labels, vocabulary.

    Returns
    -------
    Documents

    Raises
    ------
    DataError
        For an unknown format; for a line that the format does not allow, with file and line; and, if `labelled`, for a
        file without documents.
    """
    path = Path(path)
    check_choice("format", format, READERS)
    rows = list(READERS[format](path, labelled, options))
    if labelled and not rows:
        raise DataError(f"{path}: must hold at least one document, got none")
    texts, labels = [row.text for row in rows], [tuple(dict.fromkeys(row.labels)) for row in rows]
    if labelled and options.names_of_uris is not None:
        labels = _with_names(path, labels, [row.line for row in rows], options)
    ids = None if options.id_column is None else [row.id for row in rows]
    return Documents(texts, labels if labelled else None, ids)


def _with_names(
    path: Path, labels: list[tuple[str, ...]], lines: Sequence[int], options: DocumentOptions
) -> list[tuple[str, ...]]:
    """Replace URIs in labels by their names; warn of labels that the vocabulary lacks. lines : of the documents."""
    names = options.names_of_uris or {}
    named = [tuple(dict.fromkeys(name_of(label, names) for label in row)) for row in labels]
    vocabulary = f"the vocabulary {options.vocabulary or 'of the model'}"
    known, labels_of_all = set(names.values()), {label_of(uri, name) for uri, name in names.items()}
    lacking: dict[str, dict[str, int]] = {"name": {}, "uri": {}, "shared": {}}
    for line, row in zip(lines, named, strict=True):
        for name in row:
            if name not in known:
                kind = "uri" if is_uri(name) else "shared" if name in labels_of_all else "name"
                lacking[kind].setdefault(name, line)
    for kind, found in lacking.items():
        if found:
            name, line = next(iter(found.items()))
            text, others = f"{path}:{line}: {vocabulary} has", nor_others(len(found) - 1)
            if kind == "uri":
                warn(f"{text} no label for <{name}>{others}; the URI stands for it")
            elif kind == "name":
                warn(f"{text} no subject {shorten(name)}{others}; it is a label without a URI")
            else:
                warn(f"{text} several subjects {shorten(name)}; write the URI of one")
    return named


def _raw_rows(path: Path, labelled: bool, options: DocumentOptions) -> Iterator[Row]:
    """Return the rows of raw text, `label1,label2<TAB>text` a line."""
    raw = read_raw_text(path, labelled=labelled, separator=options.label_separator)
    return map(Row, itertools.count(1), raw.texts, raw.labels or itertools.repeat(()))


def _csv_rows(path: Path, labelled: bool, options: DocumentOptions) -> Iterator[Row]:
    """Yield the rows of a CSV file with a header, whose columns tell what separates fields."""
    lines: Iterable[str] = lines_of_file(path)
    first = next(iter(lines), "")
    separator_line = SEPARATOR_LINE.fullmatch(first)
    delimiter = delimiter_of(first, options.text_column) or max(DELIMITERS, key=first.count)
    if separator_line:
        delimiter = separator_line[1]
    lines = itertools.chain(["" if separator_line else first], lines)
    if delimiter == "\t":
        lines = _quoted_lines(list(lines))
    reader, begins = csv.reader((f"{line}\n" for line in lines), strict=True, delimiter=delimiter), 1
    before = csv.field_size_limit(MAX_FIELD)  # of the whole process
    try:
        if separator_line:
            next(reader)  # the line of the separator, left blank
        header = next(reader, [])
        where = f"{path}:{2 if separator_line else 1}"
        names = split_columns(options.text_column, header)
        wanted = [(name, "text_column") for name in names]
        if labelled:
            wanted.append((options.label_column, "label_column"))
        if options.id_column is not None:
            wanted.append((options.id_column, "id_column"))
        at = _columns(where, header, wanted)
        texts, id_at = [at[name] for name in names], at.get(options.id_column)
        label = at[options.label_column] if labelled else None
        begins = reader.line_num + 1  # a row has several lines if a cell has
        for row in reader:
            line, begins = begins, reader.line_num + 1
            if not row:
                continue
            if len(row) != len(header):
                remedy = "quote fields that hold" if len(row) > len(header) else "separate them by"
                got = f"got {len(row)}; {remedy} {delimiter!r}"
                raise DataError(f"{path}:{line}: must have {len(header)} fields, as the header, {got}")
            labels = () if label is None else split_labels(row[label], options.label_separator)
            yield Row(line, " ".join(row[column] for column in texts), labels, None if id_at is None else row[id_at])
    except csv.Error as error:
        remedy = "a cell that begins with a quote ends with one, and quotes inside it are written twice"
        raise DataError(f"{path}:{begins}: must be CSV, got {error}; {remedy}") from error
    finally:
        csv.field_size_limit(before)


def _quoted_lines(lines: list[str]) -> list[str]:
    """Quote cells of a table with tabs where CSV needs it.

    Many programs write such tables without quoting, and quotes are part of the text. So if all lines have the same
    number of tabs, only cells that begin and end with a quote count as quoted; other cells with quotes get quoted.
    """
    if len({line.count("\t") for line in lines if line}) != 1:
        return lines
    return ["\t".join(_as_quoted(cell) for cell in line.split("\t")) if '"' in line else line for line in lines]


def _as_quoted(cell: str) -> str:
    return cell if '"' not in cell or QUOTED_CELL.fullmatch(cell) else '"' + cell.replace('"', '""') + '"'


def _columns(where: str, header: list[str], columns: Sequence[tuple[str, str]]) -> dict[str | None, int]:
    """Return the position of each column in a header; columns : the name of each, and the option that gives it."""
    if lacking := [each for each in columns if each[0] not in header]:
        names, options = zip(*lacking, strict=True)
        wanted = f"the header must have a column {' and a column '.join(map(repr, names))}"
        got = f"got {shorten(header, SHOWN)}; {_remedy(*dict.fromkeys(options))}"
        raise DataError(f"{where}: {wanted}, {got}{suggest(names[0], header)}")
    if double := [name for name, _ in columns if header.count(name) > 1]:
        wanted = f"the header must have one column {double[0]!r}"
        raise DataError(f"{where}: {wanted}, got {shorten(header, SHOWN)}; rename the others")
    return {name: header.index(name) for name, _ in columns}


def _remedy(*options: str) -> str:
    """Return the remedy for wrong options, on the command line and in Python."""
    flags = " and ".join(f"--{option.replace('_', '-')}" for option in options)
    return f"pass {flags}, in Python {' and '.join(options)}"


def _json_rows(path: Path, labelled: bool, options: DocumentOptions) -> Iterator[Row]:
    """Yield the rows of JSON lines, `{"text": "...", "labels": ["a", "b"]}`."""
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: {ONE_OBJECT}, got {error}; {AS_LINES}") from error
        if not isinstance(entry, dict):
            raise DataError(f"{where}: {ONE_OBJECT}, got {shorten(entry)}; {AS_LINES}")
        names = split_columns(options.text_column, entry)
        texts = [_value(entry, name, "text_column", where) for name in names]
        if len(texts) > 1:
            texts = ["" if text is None else text for text in texts]  # as an empty cell of CSV
        for name, text in zip(names, texts, strict=True):
            if not isinstance(text, str):
                got = f'got {_as_json(text)}; write "" where there is none'
                raise DataError(f"{where}: {name!r} must be a string, {got}")
        labels = _value(entry, options.label_column, "label_column", where) if labelled else []
        if not isinstance(labels, list):
            got = f'got {_as_json(labels)}; write ["a", "b"], and [] where there is none; strings are not split'
            raise DataError(f"{where}: {options.label_column!r} must be a list of strings or whole numbers, {got}")
        if wrong := [label for label in labels if not _is_name(label)]:
            wanted = f"each of {options.label_column!r} must be a whole number or a string that is not blank"
            raise DataError(f"{where}: {wanted}, got {_as_json(wrong[0])}; leave it out")
        identifier = None if options.id_column is None else _identifier(entry, options.id_column, where)
        yield Row(number, " ".join(texts), tuple(label_name(str(label)) for label in labels), identifier)


def _identifier(entry: dict[str, Any], name: str, where: str) -> str | int | None:
    """Return the identifier under a key of an object, None for null; raise `DataError` for another type."""
    found: Any = _value(entry, name, "id_column", where)
    if found is not None and not isinstance(found, str) and not is_integer(found):
        raise DataError(f"{where}: {name!r} must be a string or a whole number, got {_as_json(found)}")
    if isinstance(found, str) and SURROGATE.search(found):
        raise DataError(f"{where}: {name!r} must be text that UTF-8 can hold, got {found!a}")
    return found  # type: ignore[no-any-return]


def _as_json(value: Any) -> str:
    """Return a value as in errors, but for null and booleans, which JSON writes otherwise than Python."""
    return json.dumps(value) if value is None or isinstance(value, bool) else shorten(value)


def _is_name(label: Any) -> bool:
    return is_integer(label) or (isinstance(label, str) and bool(label.strip()))


def _value(entry: dict[str, Any], name: str, option: str, where: str) -> Any:
    if name not in entry:
        wanted = f"must be an object with the key {name!r}"
        got = f"got the keys {shorten(list(entry), SHOWN)}"
        nothing = f"; write {EMPTY_JSON[option]} where there is none"
        raise DataError(f"{where}: {wanted}, {got}; {_remedy(option)}{suggest(name, entry) or nothing}")
    return entry[name]


def _annif_rows(path: Path, labelled: bool, options: DocumentOptions) -> Iterator[Row]:
    """Yield the rows of an Annif corpus, `text<TAB><uri> <uri>` a line."""
    for number, line in numbered_lines(path):
        text, tab, subjects = line.rpartition("\t")
        if labelled and (not tab or (subjects.strip() and not URIS.fullmatch(subjects))):
            remedy = "; if it is a header, name its columns: --text-column, --label-column" if number == 1 else ""
            raise DataError(f"{path}:{number}: must read `text<TAB><uri> <uri>`, got {shorten(line)}{remedy}")
        if labelled:
            yield Row(number, text, tuple(BRACKETED_URI.findall(subjects)))
        else:
            yield Row(number, text if are_annif([line]) else line, ())


def _fasttext_rows(path: Path, labelled: bool, options: DocumentOptions) -> Iterator[Row]:
    """Yield the rows of fastText, `__label__a __label__b text` a line; every word with the prefix is a label."""
    for number, line in enumerate(lines_of_file(path), 1):
        words = line.split()
        labels = [word for word in words if word.startswith(LABEL_PREFIX) and word != LABEL_PREFIX]
        text = " ".join(word for word in words if not word.startswith(LABEL_PREFIX)) if labels else line
        yield Row(number, text, tuple(composed(label.removeprefix(LABEL_PREFIX)) for label in labels))


READERS: dict[str, Callable[[Path, bool, DocumentOptions], Iterator[Row]]] = {
    "raw": _raw_rows, "csv": _csv_rows, "jsonl": _json_rows, "annif": _annif_rows, "fasttext": _fasttext_rows,
}  # fmt: skip
