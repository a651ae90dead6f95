"""Pairs of text files, the split form of the Extreme Classification Repository.

    trn_X_Xf.txt  trn_X_Y.txt  tst_X_Xf.txt  tst_X_Y.txt    header `rows columns`, then `index:value index:value`

An entry of Y is a label of the row if its value is not zero; the value itself is dropped. `labels.txt` beside the files
holds the label names, if they are known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import DataError, warn
from ..csr import CSR
from .base import PairFormat
from .libsvm import read_libsvm_features, write_rows

FILTERS = "*filter_labels*.txt"


class Split(PairFormat):
    """Pairs of text files."""

    files = "trn_X_Xf.txt and trn_X_Y.txt (tst_*)"
    precedence = 2
    is_text = True
    names: ClassVar = {"train": ("trn_X_Xf.txt", "trn_X_Y.txt"), "test": ("tst_X_Xf.txt", "tst_X_Y.txt")}

    def read_pair(self, X_path: Path, Y_path: Path, options: dict[str, Any]) -> tuple[CSR, CSR, tuple[bool, bool]]:
        """Return X and Y; the options are those of `read_libsvm`."""
        X_options = dict(options)
        X_options.pop("labels_required", None)  # labels are in the file of Y
        Y_options: dict[str, Any] = {
            "zero_based": X_options.pop("zero_based_labels", True),
            "n_features": X_options.pop("n_labels", None),
            "duplicates": "sum",  # a label twice counts once
            "n_threads": options.get("n_threads"),
        }
        for filters in sorted(X_path.parent.glob(FILTERS)):
            warn(f"{filters}: read only by evaluate --filter, which drops its pairs from rankings (docs/metrics.md)")
        X, declares_features = read_libsvm_features(X_path, **X_options)
        Y, declares_labels = read_libsvm_features(Y_path, **Y_options)
        return X, Y, (declares_features, declares_labels)

    def write_matrix(self, matrix: CSR, path: Path) -> None:
        """Write a matrix as text; raise `DataError` for one that could not be read back."""
        if not matrix.nnz or not np.isfinite(matrix.data).all():
            raise DataError(f"{path.name}: must have entries, all finite, got {matrix.nnz} entries")
        with path.open("xb") as stream:
            stream.write(b"%d %d\n" % matrix.shape)
            write_rows(stream, matrix)


FORMAT = Split()
