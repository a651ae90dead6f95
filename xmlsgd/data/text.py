"""Read raw text, one document per line, with or without labels; read and write files of label names and texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import NUL_BYTE, TO_UTF8, DataError, shorten
from .files.reading import MAX_LINE_BYTES, READ_ERRORS, damage_of, open_text
from .label_names import check_distinct, label_name, split_labels

NO_NAME = re.compile("[\0\r\n\ufeff\ud800-\udfff]")  # characters that a line cannot hold, or a reader would drop


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents and, if the file has them, the label names of each; ids : identifiers, if they were asked for."""

    texts: list[str]
    labels: list[tuple[str, ...]] | None = None
    ids: list[str | int | None] | None = None

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
