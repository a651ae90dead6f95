"""Files with a line for each row, label or pair of both: `--groups`, `--exclude` and `--filter`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..data.csr import CSR
from ..data.label_names import are_numbers, composed, label_name
from ..data.text import lines_of_file, numbered_lines
from ..data.vocabulary import name_of
from ..errors import DataError, nor_others, shorten, warn
from ..estimators import Model
from ..metrics.filtering import matrix_of_pairs
from .exit_codes import UsageError

MOST_DIGITS = 18  # of the number of a row, as int() refuses very long ones


def read_excluded(path: str | None, model: Model, names_of: Mapping[str, str]) -> np.ndarray | None:
    """Return the columns of the labels that a file lists by name or URI, one per line; None without a file.

    What follows a tab is ignored, so that lines of a vocabulary may be listed. Warns of names that the model does not
    have: they may be misspelled.
    """
    if path is None:
        return None
    columns = {str(name): column for column, name in enumerate(model.classes_.tolist())}
    # Names that were learned in Python may not be in the composed form (NFC), in which lines are compared.
    columns = {composed(name): column for name, column in columns.items()} | columns
    lines = (label_name(line.partition("\t")[0]) for line in lines_of_file(path))
    names = [name if name in columns else name_of(name, names_of) for name in lines]
    unknown = [(number, name) for number, name in enumerate(names, 1) if name and name not in columns]
    if unknown:
        number, name = unknown[0]
        text = f"{path}:{number}: the model has no label {shorten(name)}"
        warn(f"{text}{nor_others(len(unknown) - 1)}; unknown labels exclude nothing")
    return np.array([columns[name] for name in names if name in columns], dtype=np.int64)


def read_pairs(path: str | None, model: Model, n_rows: int) -> CSR | None:
    """Return the pairs of a row and a label in the lines of a file, as entries (n_rows, L); None without a file.

    Rows count from 0. If all labels of the model are numbers, labels are these, else columns, from 0. Pairs with labels
    that the model does not know are left out: it never predicts them.
    """
    if path is None:
        return None
    names = [str(name) for name in model.classes_.tolist()]
    labels = names if are_numbers(names) else map(str, range(len(names)))
    column, pairs = {label: i for i, label in enumerate(labels)}, []
    for line_number, line in numbered_lines(path):
        words = line.split()
        if len(words) != 2 or not are_numbers(words) or len(words[0]) > MOST_DIGITS or int(words[0]) >= n_rows:
            wanted = f"must be a row below {n_rows:,} and a label, as in `0 17`"
            raise DataError(f"{path}:{line_number}: {wanted}, got {shorten(line)}; pass the pairs of these rows")
        if words[1] in column:
            pairs.append((int(words[0]), column[words[1]]))
    return matrix_of_pairs(np.array(pairs, np.int64).reshape(-1, 2), n_rows)


def groups_in_file(path: str | None, n_rows: int) -> list[str] | None:
    """Return the group of each row, line i of a file for row i; None without a file."""
    if path is None:
        return None
    if not Path(path).exists():
        raise UsageError(f"--groups {path}: no such file; pass a file whose line i is the group of row i")
    groups = [line.strip() for line in lines_of_file(path)]
    if len(groups) != n_rows:
        raise UsageError(f"--groups {path}: must have a line for each of {n_rows:,} rows, got {len(groups):,} lines")
    return groups
