"""Texts of labels, from `--label-texts` or `--vocabulary`, and their assignment to labels."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import replace

from ..data.csr import Dataset
from ..data.label_names import sorted_names
from ..data.text import read_label_texts
from ..data.vocabulary import label_of, name_of
from ..errors import DataError, shorten
from .input_options import InputOptions

LabelTexts = Sequence[tuple[str, str]]  # label and text
NUMBER = re.compile("0|[1-9][0-9]*")


def find_label_texts(path: str, options: InputOptions) -> LabelTexts:
    """Return label and text of each line of `--label-texts`; without this flag, of each entry of `--vocabulary`."""
    if options.label_texts is None and (options.vocabulary is None or options.document_format(path) is None):
        return []
    names = options.names_of_uris
    if options.label_texts is None:
        return [(name, label_of(uri, name)) for uri, name in (names or {}).items()]
    return [(name_of(label, names or {}), text) for label, text in read_label_texts(options.label_texts)]


def with_label_texts(train: Dataset, lines: LabelTexts, path: str | None) -> tuple[Dataset, list[str | None]]:
    """Return training rows with a column for each label of `--label-texts`, and the text of each column.

    If labels have names and any line begins with one, lines are assigned by name. Otherwise line i is the text of label
    i, or of the label named i if all names are numbers, some of which may have no rows.
    """
    names = train.label_names
    if names and path is not None and not are_named(lines, set(names)) and all(map(NUMBER.fullmatch, names)):
        if (last := max(map(int, names))) >= len(lines):
            raise DataError(f"{path}: must have a line for each label from 0 to {last}, got {len(lines)} lines")
        lines = [(str(number), text) for number, (_, text) in enumerate(lines)]
    if names is not None and (path is None or are_named(lines, set(names))):
        return _with_named_texts(train, lines, path)
    texts: list[str | None] = [text for _, text in lines]
    if len(texts) < train.n_labels or (names is not None and len(texts) > len(names)):
        named = f", or lines that begin with names of labels, such as {shorten(names[0])}, and a tab" if names else ""
        raise DataError(f"{path}: must have a line for each of {train.n_labels} labels{named}, got {len(texts)}")
    return replace(train, Y=replace(train.Y, n_cols=len(texts))), texts


def _with_named_texts(train: Dataset, lines: LabelTexts, path: str | None) -> tuple[Dataset, list[str | None]]:
    """Do the same by the names of labels; new ones get columns after the others."""
    text_of = text_of_each(lines, path)
    known = list(train.label_names or ())
    names = known + sorted_names(set(text_of).difference(known, [""]))
    dataset = replace(train, Y=replace(train.Y, n_cols=len(names)), label_names=names)
    return dataset, [text_of.get(name) for name in names]


def are_named(lines: LabelTexts, names: Set[str]) -> bool:
    """Return whether any line of `--label-texts` begins with the name of a label."""
    return not names.isdisjoint(label for label, _ in lines)


def text_of_each(lines: LabelTexts, path: str | None) -> dict[str, str]:
    """Return the text of each label; raise `DataError` for a label with two."""
    text_of: dict[str, str] = {}
    for number, (label, text) in enumerate(lines, 1):
        if label in text_of:
            raise DataError(f"{path}:{number}: a label must have one text, got {shorten(label)} twice; remove one")
        text_of[label] = text
    return text_of
