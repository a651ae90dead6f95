"""What is said of data: how large they are, and a warning where they cannot be what was meant."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..csr import Dataset

ONCE, FEW_ROWS = 1.2, 20  # of fewer rows times a label, or fewer rows, nothing can be said


def warn_of_labels(dataset: Dataset, path: str) -> None:
    """Warn where hardly a label comes twice: then there is nothing to learn, or what was read as labels are texts."""
    n_labels = len(np.unique(dataset.Y.indices))
    if dataset.n_rows >= FEW_ROWS and dataset.Y.nnz < ONCE * n_labels:
        text = f"{path}: {n_labels:,} labels in {dataset.n_rows:,} rows, hardly one of them twice"
        warnings.warn(f"{text}; are they labels? Of raw text they stand before the tab", stacklevel=2)


def warn_of_unknown(dataset: Dataset, n_known: int, path: str) -> None:
    """Warn where no test row has a label that the model knows."""
    if dataset.Y.nnz and dataset.Y.indices.min() >= n_known:
        text = f"{path}: the model knows none of its labels, so that all measures will be 0"
        warnings.warn(f"{text}; are these its test rows, with labels first?", stacklevel=2)


def describe(dataset: Dataset) -> str:
    """Return a data set's size in words."""
    per_row = dataset.X.nnz / max(dataset.n_rows, 1), dataset.Y.nnz / max(dataset.n_rows, 1)
    return (
        f"{dataset.n_rows:,} rows, {dataset.n_features:,} features ({per_row[0]:.1f} a row), "
        f"{dataset.n_labels:,} labels ({per_row[1]:.1f} a row)"
    )


def shape_of(dataset: Dataset) -> dict[str, int]:
    """Return a data set's size as numbers for JSON."""
    return {
        "rows": dataset.n_rows, "features": dataset.n_features, "labels": dataset.n_labels,
        "nnz": dataset.X.nnz, "label_nnz": dataset.Y.nnz,
        "rows_without_label": int(np.count_nonzero(np.diff(dataset.Y.indptr) == 0)),
    }  # fmt: skip
