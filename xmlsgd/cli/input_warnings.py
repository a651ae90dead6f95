"""Warnings about data that cannot be what was meant."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from ..errors import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..data.csr import Dataset

QUOTES, SEPARATORS = "\"'", ";|"
ONCE, FEW_ROWS = 1.2, 20  # of fewer rows times a label, or fewer rows, nothing can be said


def warn_of_labels(dataset: Dataset, path: str) -> None:
    """Warn where hardly a label comes twice: then there is nothing to learn, or what was read as labels are texts."""
    n_labels = len(np.unique(dataset.Y.indices))
    if dataset.n_rows >= FEW_ROWS and dataset.Y.nnz < ONCE * n_labels:
        text = f"{path}: {n_labels:,} labels in {dataset.n_rows:,} rows, hardly one of them twice"
        warnings.warn(f"{text}; are they labels? Of raw text they stand before the tab", stacklevel=2)


def warn_of_names(names: Sequence[str], path: str) -> None:
    """Warn of names of labels of raw text that tell of a file that was written by other rules."""
    cut = next((name for name in names if name[0] in QUOTES and (len(name) == 1 or name[-1] != name[0])), None)
    if cut is not None:
        text = f"{path}: the label {shorten(cut)} begins with a quote and does not end with it"
        warnings.warn(f"{text}; quotes are part of a name, and every comma ends one: write names without", stacklevel=2)
    for mark in SEPARATORS:
        if 2 * sum(mark in name for name in names) > len(names):
            text = f"{path}: most of {len(names):,} labels have {mark!r} in them"
            warnings.warn(f"{text}; if it stands between labels: that must be a comma", stacklevel=2)


def warn_of_base(dataset: Dataset, path: str) -> None:
    """Warn where neither feature 0 nor label 0 occurs: LIBSVM files count both from one, and no line is wrong then."""
    X, Y = dataset.X, dataset.Y
    if dataset.n_rows >= FEW_ROWS and X.nnz and Y.nnz and min(X.indices.min(), Y.indices.min()) > 0:
        text = f"{path}: neither feature 0 nor label 0 occurs"
        warnings.warn(f"{text}; if they count from one: --one-based --one-based-labels", stacklevel=2)


def warn_of_unknown(dataset: Dataset, n_known: int, path: str) -> None:
    """Warn where no test row has a label that the model knows."""
    if dataset.Y.nnz and dataset.Y.indices.min() >= n_known:
        text = f"{path}: the model knows none of its labels, so that all measures will be 0"
        warnings.warn(f"{text}; are these its test rows, with labels first?", stacklevel=2)
