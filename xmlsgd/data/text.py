"""Read raw text, one document per line, with or without label names; read and write names of labels."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import NUL_BYTE, TO_UTF8, DataError, shorten
from .csr import CSR, indicator
from .files.reading import MAX_LINE_BYTES, READ_ERRORS, damage_of, open_text

QUOTED = r'\s*"((?:[^"]|"")*)"\s*'  # a name in quotes; a quote in the name is written twice
URI = r"(?:<[^<>\s]+>|[A-Za-z][A-Za-z0-9+.-]*://\S+)"
SEVERAL_URIS = re.compile(rf"{URI}(?:\s+{URI})+")
NO_NAME = re.compile("[\0\r\n\ufeff\ud800-\udfff]")  # characters that a line cannot hold, or a reader would drop


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents and, if the file has them, the label names of each."""

    texts: list[str]
    labels: list[tuple[str, ...]] | None = None

    @property
    def label_names(self) -> set[str]:
        """Return the distinct names of all labels."""
        return set[str]().union(*self.labels or ())


def read_raw_text(path: str | Path, *, labelled: bool = False, separator: str = ",") -> Documents:
    """Read documents from a UTF-8 file, one per line; `.gz`, `.bz2` and `.xz` are decompressed.

    A label that occurs twice in a row counts once; names are converted to Unicode's composed form (NFC). An empty line
    is an empty document; empty lines at the end are ignored.

    Parameters
    ----------
    path : str or path
        The documents.
    labelled : bool
        Whether each line of `path` itself reads `label1,label2<TAB>text`.
    separator : str
        Text between two labels.

    Returns
    -------
    Documents

    Raises
    ------
    DataError
        With file and line: for bytes that are not UTF-8, a NUL byte, a line above 64 MB, no tab, or a broken archive.
    """
    texts = list(lines_of_file(path))
    texts = texts[: max((i for i, text in enumerate(texts, 1) if text and not text.isspace()), default=0)]
    labels: list[tuple[str, ...]] | None = None
    if labelled:
        labels = []
        for i, line in enumerate(texts):
            head, texts[i] = labels_and_text(line, f"{path}:{i + 1}")
            labels.append(split_labels(head, separator))
            if "\r" in head and (broken := [name for name in labels[-1] if "\r" in name]):
                raise DataError(f"{path}:{i + 1}: label must be without line ends, got {shorten(broken[0])}")
    if not texts:
        raise DataError(f"{path}: must hold at least one document, got an empty file")
    return Documents(texts, labels)


def labels_and_text(line: str, where: str) -> tuple[str, str]:
    """Return labels and text of a line `label1,label2<TAB>text`; where : `file:line`, for errors."""
    labels, tab, text = line.partition("\t")
    if not tab:
        raise DataError(f"{where}: must read `label1,label2<TAB>text`, got no tab in {shorten(line)}")
    return labels, text


def index_labels(labels: Iterable[Sequence[str]], names: Sequence[str] | None = None) -> tuple[CSR, list[str]]:
    """Return Y (n, L) with ones, and the L label names; labels : the names of each row.

    Without `names`, the columns are all names in sorted order. Otherwise they are `names`, then further names of the
    rows, so that test rows keep labels that were never trained.
    """
    rows, known = [set(row) for row in labels], list(names or ())
    columns = known + sorted(set[str]().union(*rows).difference(known))
    index = {name: column for column, name in enumerate(columns)}
    return indicator(rows, index), columns


def check_distinct(names: Sequence[str], where: str) -> None:
    """Raise `DataError` if a label name occurs twice: nobody could tell which of the two labels is meant."""
    seen: dict[str, int] = {}
    for line, name in enumerate(names, 1):
        first = seen.setdefault(name, line)
        if first != line:
            raise DataError(f"{where}: label names must differ, got {shorten(name)} on lines {first} and {line}")


def read_label_names(path: str | Path, n_labels: int) -> list[str]:
    """Return the names of `n_labels` labels, one a line; raise `DataError` for more, fewer, or equal ones."""
    names = read_raw_text(path).texts
    if len(names) != n_labels:
        raise DataError(f"{path}: must have a line for each of {n_labels} labels, got {len(names)}")
    check_distinct(names, str(path))
    return names


def read_label_texts(path: str | Path) -> list[tuple[str, str]]:
    """Return label and text of each line `label<TAB>text`; a line without a tab is label and text."""
    parts = [line.partition("\t") for line in lines_of_file(path)]
    if parts and parts[0][0].startswith('{"'):
        got = f"got JSON, {shorten(parts[0][0])}; `jq -r .title FILE` extracts a key from each line"
        raise DataError(f"{path}:1: must read `label<TAB>text`, or a text a line, {got}")
    return [(label_name(label), text if tab else label) for label, tab, text in parts]


def write_label_names(names: Sequence[str], n_labels: int, path: Path) -> None:
    """Write a line for each label; raise `DataError` for names that could not be read back."""
    if len(names) != n_labels:
        raise DataError(f"label names must be one for each of {n_labels} labels, got {len(names)}")
    for label, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or NO_NAME.search(name):
            raise DataError(f"label {label}: its name must be a line of text that is not blank, got {shorten(name)}")
    check_distinct(names, str(path.name))
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8", newline="\n")


def lines_of_file(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text file, decoded, without line ends; errors name file and line."""
    where = name = str(path)
    try:
        with open_text(Path(path)) as stream:
            for number in itertools.count(1):
                where = f"{name}:{number}"
                if not (line := stream.readline(MAX_LINE_BYTES + 1)):
                    break
                if number == 1 and b"\r" in line.rstrip(b"\r\n") and not line.endswith(b"\n"):
                    remedy = r"convert it by `tr '\r' '\n'`"  # as Excel's "CSV (Macintosh)" has them
                    raise DataError(f"{where}: lines must end with LF or CRLF, got CR alone; {remedy}")
                yield decode_line(line, where)
    except READ_ERRORS as error:
        raise damage_of(path, error, where) from error


def numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines that are not blank; numbers count all lines, from 1."""
    return ((number, line) for number, line in enumerate(lines_of_file(path), 1) if line.strip())


def decode_line(line: bytes, where: str) -> str:
    """Return a line as text without its end; where : `file:line`, for errors."""
    if len(line) > MAX_LINE_BYTES:
        raise DataError(f"{where}: a line must be at most {MAX_LINE_BYTES} bytes, got more; shorten the text")
    try:
        text = line.decode("utf-8-sig" if where.endswith(":1") else "utf-8")
    except UnicodeDecodeError as error:
        got = f"byte 0x{line[error.start]:02x} at {error.start}"
        raise DataError(f"{where}: must be UTF-8, got {got}; {TO_UTF8}") from error
    if "\0" in text:
        raise DataError(f"{where}: must be text, {NUL_BYTE}")
    return text.rstrip("\r\n")


def composed(text: str) -> str:
    """Return a text in NFC, in which a letter with an accent is one character, so that equal names compare equal."""
    return unicodedata.normalize("NFC", text)


def label_name(text: str) -> str:
    """Return the name of a label in NFC and without spaces at its ends, so that equal names compare equal."""
    return composed(text.strip())


def split_labels(field: str, separator: str) -> tuple[str, ...]:
    """Return the distinct label names of a field such as `a,"b, c",d`, in order.

    As in CSV, a name in quotes may contain the separator, here a comma; the quotes are removed. URIs may be separated
    by spaces, too, as in the corpora of Annif.
    """
    parts = field.split(separator)
    if '"' in field and '"' not in separator:
        end = rf"(?:{re.escape(separator)}|\Z)"
        found = re.findall(rf"{QUOTED}{end}|(.*?){end}", field, re.DOTALL)
        parts = [quoted.replace('""', '"') or plain for quoted, plain in found]
    names = [name for part in parts if (name := label_name(part))]
    return tuple(dict.fromkeys(each for name in names for each in _uris_or_name(name)))


def _uris_or_name(name: str) -> list[str]:
    return name.split() if SEVERAL_URIS.fullmatch(name) else [name]
