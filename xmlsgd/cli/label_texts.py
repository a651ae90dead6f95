"""The file of `--label-texts`: a line for each label, which may add labels that no row has."""

from __future__ import annotations

from dataclasses import replace

from ..data.csr import Dataset
from ..data.text import read_label_texts
from ..errors import DataError, shorten


def with_label_texts(train: Dataset, path: str) -> tuple[Dataset, list[str | None]]:
    """Return training rows with a column for each label of the file, and the text of each column.

    Labels with names are found by them where any line begins with one; otherwise line i is of label i.
    """
    lines, names = read_label_texts(path), train.label_names
    if names is not None and not set(names).isdisjoint(label for label, _ in lines):
        return _by_name(train, lines, path)
    texts: list[str | None] = [text for _, text in lines]
    if len(texts) < train.n_labels or (names is not None and len(texts) > len(names)):
        raise DataError(f"{path}: must have a line for each of {train.n_labels} labels, got {len(texts)}")
    return replace(train, Y=replace(train.Y, n_cols=len(texts))), texts


def _by_name(train: Dataset, lines: list[tuple[str, str]], path: str) -> tuple[Dataset, list[str | None]]:
    """Return the same for texts of labels that are found by their names; new ones get columns behind."""
    text_of: dict[str, str] = {}
    for number, (label, text) in enumerate(lines, 1):
        if label in text_of:
            raise DataError(f"{path}:{number}: a label must have one text, got {shorten(label)} twice; remove one")
        text_of[label] = text
    known = list(train.label_names or ())
    names = known + sorted(set(text_of).difference(known, [""]))
    dataset = replace(train, Y=replace(train.Y, n_cols=len(names)), label_names=names)
    return dataset, [text_of.get(name) for name in names]
