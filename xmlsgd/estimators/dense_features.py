"""Dense features: their scale, and landmarks, training rows to which a row may be near.

Features that most rows have, such as those of an embedding, tell neither which rows of an inverted index are near nor
which labels occur with them. So rows get sparse features instead: the training rows of a random sample, the landmarks,
that have the most similar dense features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.csr import CSR
from ..data.files.folders import FolderArrays
from ..data.validation import FLOAT32_MAX
from ..errors import ModelFileError, shorten
from .defaults import FREQUENT, NORM_ROWS
from .inputs import damped_values
from .workers import thread_count

LEAST_DENSE = 32  # fewer frequent features with values below 0 are measurements, not an embedding
NEARLY_ALL = 0.9  # share of the rows with an embedding that makes a feature a part of it, if all its values are above 0
# The rest is measured (docs/decisions/candidates.md).
DENSE_SHARE = 0.4  # of the squared values of a typical row, beside sparse features
NEGLIGIBLE = 1e-8  # share of the squared values of sparse features that do not count
N_LANDMARKS, LEAST_LANDMARKS = 8192, 32
ALIKE = 1e-3  # difference of the dense features, of norm 1, up to which two rows are alike
N_NEAREST = 16  # landmarks of a row
PREFIX = "dense_"  # of the names of arrays in files
LANDMARK_NORM = 0.2  # of a row's landmarks, in relation to its dense features


@dataclass(frozen=True, eq=False)
class DenseFeatures:
    """The dense features of a model, and how their rows are read.

    columns : the features, int32 (d,), ascending. rows : the training rows that are landmarks, int32 (C,), ascending.
    landmarks : their dense features minus the means, of norm 1, float32 (d, C). means : of dense features, float32
    (d,). factor : by which the values of dense features are multiplied. norm : norm of the values that a row has for
    its landmarks.
    """

    columns: NDArray[np.int32]
    rows: NDArray[np.int32]
    landmarks: NDArray[np.float32]
    means: NDArray[np.float32]
    factor: float
    norm: float

    @property
    def n_landmarks(self) -> int:
        """The number of landmarks."""
        return len(self.rows)

    @property
    def scalars(self) -> dict[str, float]:
        """The scalars by name, for JSON."""
        return {"factor": self.factor, "norm": self.norm}

    def bytes_for(self, n_rows: int) -> int:
        """Return the bytes of the landmarks, and of the entries that name those of rows."""
        return 4 * self.landmarks.size + 8 * N_NEAREST * n_rows

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, for files."""
        names = "columns", "rows", "landmarks", "means"
        return {PREFIX + name: getattr(self, name) for name in names}

    @cached_property
    def _position(self) -> NDArray[np.int32]:
        """The position of each feature among the columns, -1 for none, int32 (largest column + 1,)."""
        position = np.full(self.columns[-1] + 1, -1, np.int32)
        position[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        return position

    def transform(self, X: CSR, n_jobs: int | None = None) -> CSR:
        """Return X (n, F) with scaled dense features and, in front, the nearest landmarks of each row (n, C + F)."""
        from ..devices.cpu import CPU  # here, so that creating an estimator does not import Numba
        from ..devices.cpu.kernels.landmarks import add_landmarks

        device = CPU(1 if X.n_rows == 1 else thread_count(n_jobs, 2.0 * X.n_rows * self.landmarks.size))
        size = X.nnz + N_NEAREST * X.n_rows
        indices, data = np.empty(size, np.int32), np.empty(size, np.float32)
        scalars = np.float32(self.factor), np.float32(self.norm), N_NEAREST
        with device.start():
            device.run(
                add_landmarks, X.indptr, X.indices, X.data, self._position, *scalars, self.landmarks, self.means,
                indices, data,
            )  # fmt: skip
        indptr = X.indptr + N_NEAREST * np.arange(X.n_rows + 1)
        return CSR(indptr, indices, data, self.n_landmarks + X.n_cols).without_zeros()


def read_dense_features(scalars: Any, saved: FolderArrays, n_features: int) -> DenseFeatures | None:
    """Return dense features from `DenseFeatures.scalars` and arrays; None if `scalars` is None.

    n_features : of the network, with the landmarks. Raises `ModelFileError` for invalid contents.
    """
    if scalars is None:
        return None
    found = saved.part(PREFIX)
    columns, rows = found.array("columns", np.int32, None), found.array("rows", np.int32, None)
    landmarks, means = found.finite("landmarks", len(columns), len(rows)), found.finite("means", len(columns))
    given: list[Any] = [scalars.get(name) for name in ("factor", "norm")] if isinstance(scalars, dict) else [None]
    is_sound = all(isinstance(x, int | float) and 0 < x < FLOAT32_MAX for x in given)
    n_others = n_features - len(rows)
    if not is_sound or len(rows) < LEAST_LANDMARKS or (np.diff(columns, prepend=-1, append=n_others) < 1).any():
        wanted = f"dense must have factor and norm above 0, and {PREFIX}columns ascend, below {n_others}"
        raise ModelFileError(f"{saved.path}: {wanted}; got {shorten(scalars)}; fit the model again")
    return DenseFeatures(columns, rows, landmarks, means, *map(float, given))


def find_dense_features(X: CSR) -> DenseFeatures | None:
    """Return the dense features of training rows X whose values are not damped yet; None if there are none.

    The landmarks do not depend on the seed of the model: classifiers of an ensemble read the same rows.
    """
    first = X.span(0, min(X.n_rows, NORM_ROWS))
    negative = first.indices[first.data < 0]
    if len(negative) < LEAST_DENSE:  # words have no values below 0, and nothing more is computed
        return None
    has_negative = np.bincount(negative, minlength=X.n_cols) > 0
    if np.count_nonzero(has_negative) < LEAST_DENSE:
        return None
    counts = np.bincount(first.indices[first.data != 0], minlength=X.n_cols)
    is_frequent = counts >= FREQUENT * first.n_rows
    if np.count_nonzero(is_frequent & has_negative) < LEAST_DENSE:
        return None
    is_dense = is_frequent & (has_negative | (counts >= NEARLY_ALL * counts.max()))
    columns = np.flatnonzero(is_dense).astype(np.int32)
    entries = damped_values(first).to_scipy()
    parts = (entries[:, kept].astype(np.float64) for kept in (is_dense, ~is_dense))
    dense, sparse = (float(np.median(part.power(2).sum(axis=1))) for part in parts)
    factor = 1.0
    if sparse > NEGLIGIBLE * dense:
        factor = math.sqrt(DENSE_SHARE / (1 - DENSE_SHARE) * sparse / dense)
    rows, landmarks, means = _landmarks(X, columns)
    if len(rows) < LEAST_LANDMARKS:
        return None
    norm = LANDMARK_NORM * factor * math.sqrt(dense)
    return DenseFeatures(columns, rows, landmarks, means, factor, norm)


def _landmarks(X: CSR, columns: np.ndarray) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Return the rows of X that are landmarks, the landmarks, and the means of dense features (`DenseFeatures`).

    Of rows that are alike, one is a landmark: a row has as many different ones as it can.
    """
    rows = np.sort(np.random.default_rng(0).permutation(X.n_rows)[:N_LANDMARKS]).astype(np.int32)
    dense: Any = damped_values(X.take(rows)).to_scipy()[:, columns].toarray()
    rows, dense = rows[dense.any(axis=1)], dense[dense.any(axis=1)]
    means = dense.mean(axis=0, dtype=np.float64).astype(np.float32)
    dense -= means
    norms = np.linalg.norm(dense.astype(np.float64), axis=1, keepdims=True)
    dense /= np.where(norms > 0, norms, 1)
    _, kept = np.unique(np.round(dense / ALIKE), axis=0, return_index=True)
    kept.sort()
    return rows[kept], np.ascontiguousarray(dense[kept].T), means
