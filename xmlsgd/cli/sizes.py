"""How large data are, in words for a terminal and in numbers for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..data.csr import Dataset


def size_text(dataset: Dataset) -> str:
    """Return a data set's size in words."""
    per_row = dataset.X.nnz / max(dataset.n_rows, 1), dataset.Y.nnz / max(dataset.n_rows, 1)
    return (
        f"{dataset.n_rows:,} rows, {dataset.n_features:,} features ({per_row[0]:.1f} a row), "
        f"{dataset.n_labels:,} labels ({per_row[1]:.1f} a row)"
    )


def size_numbers(dataset: Dataset) -> dict[str, int]:
    """Return a data set's size as numbers for JSON."""
    return {
        "rows": dataset.n_rows, "features": dataset.n_features, "labels": dataset.n_labels,
        "nnz": dataset.X.nnz, "label_nnz": dataset.Y.nnz,
        "rows_without_label": int(np.count_nonzero(np.diff(dataset.Y.indptr) == 0)),
    }  # fmt: skip
