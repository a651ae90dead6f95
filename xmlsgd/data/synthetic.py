"""Synthetic multi-label data with the shape of real sets: power laws, rows of various lengths, a structure to learn.

Each label has a prototype, a few features. A row draws its labels from a power law, then each of its features either
from the prototype of one of its labels or, as noise, from a power law over all features. Values are log-normal counts
times the inverse document frequency, scaled to L2 norm 1 as TF-IDF rows are. The rows depend only on the
arguments, not on threads or memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..errors import DataError, shorten
from .csr import CSR, INT32_MAX, Dataset, pointers, stacked
from .validation import is_integer, is_number
from .vectorizer import smooth_idf

CHUNK_ROWS = 1 << 15  # rows drawn at once, by a generator for each chunk, which bounds memory for any n_rows
DRAW_ROUNDS = 8  # how often entries that occur twice in a row are drawn again; then they are left out
FEATURE_EXPONENT = 1.0  # the frequency of the r-th feature falls as r^-1
PROTOTYPE_SIZE = 16  # features that are typical of a label
LENGTH_SIGMA = 0.5  # spread of ln(nnz) between rows, about that of product descriptions
COUNT_SIGMA = 0.5  # spread of ln(count) between the entries of a row
STRUCTURE, ROWS, SPLIT = range(3)  # purposes of random generators, as parts of their seeds


def make_xmc(
    n_rows: int,
    n_features: int,
    n_labels: int,
    *,
    nnz_per_row: float = 76,
    labels_per_row: float = 5.4,
    label_exponent: float = 1.0,
    noise: float = 0.5,
    random_state: int = 0,
) -> Dataset:
    """Return a synthetic data set with the shape of real ones.

    Parameters
    ----------
    n_rows, n_features, n_labels : int
        The shape.
    nnz_per_row, labels_per_row : float
        Mean number of features and of labels of a row, which has at least one of each; lengths are log-normal.
    label_exponent : float
        The frequency of the r-th label falls as r^-exponent, that of a feature as r^-1; indices are random.
    noise : float in [0, 1]
        Share of features that do not depend on the labels.
    random_state : int
        Seed; rows depend on the arguments alone.

    Returns
    -------
    Dataset
        X float32 (n_rows, n_features) and Y (n_rows, n_labels).

    Raises
    ------
    DataError
        For an argument outside its range.

    Examples
    --------
    >>> from xmlsgd import make_xmc
    >>> make_xmc(100, 50, 20, nnz_per_row=5, labels_per_row=2)
    <Dataset: 100 rows, 50 features, 20 labels>
    """
    _check_counts(n_rows=n_rows, n_features=n_features, n_labels=n_labels)
    _check_range("nnz_per_row", nnz_per_row, 1, n_features)
    _check_range("labels_per_row", labels_per_row, 1, n_labels)
    _check_range("label_exponent", label_exponent, 0, 10)
    _check_range("noise", noise, 0, 1)
    seed = _checked_seed(random_state)
    structure = _Structure(n_features, n_labels, label_exponent, noise, seed)
    chunks = []
    for chunk, start in enumerate(range(0, n_rows, CHUNK_ROWS)):
        rng = np.random.default_rng((seed, ROWS, chunk))
        chunks.append(structure.draw_rows(min(CHUNK_ROWS, n_rows - start), nnz_per_row, labels_per_row, rng))
    X, Y = map(stacked, zip(*chunks, strict=True))
    del chunks
    _scale_to_tf_idf(X)
    return Dataset(X, Y)


def split_rows(dataset: Dataset, test_size: float = 0.2, random_state: int = 0) -> tuple[Dataset, Dataset]:
    """Return (train, test); test_size : share of rows, in (0, 1), drawn at random for test. Rows keep their order."""
    if not 0 < test_size < 1 or not 1 <= round(test_size * dataset.n_rows) < dataset.n_rows:
        raise DataError(f"test_size: must leave rows on both sides of {dataset.n_rows}, got {shorten(test_size)}")
    order = np.random.default_rng((_checked_seed(random_state), SPLIT)).permutation(dataset.n_rows)
    n_test = round(test_size * dataset.n_rows)
    return dataset.take(np.sort(order[n_test:])), dataset.take(np.sort(order[:n_test]))


class _Structure:
    """The random structure that all rows share.

    feature_ids, label_ids : by rank, the most frequent first. feature_cdf, label_cdf : cumulated frequencies by rank.
    prototypes : int32 (L, PROTOTYPE_SIZE), the features of each label. noise : share of features drawn from all.
    """

    def __init__(self, n_features: int, n_labels: int, label_exponent: float, noise: float, seed: int) -> None:
        rng = np.random.default_rng((seed, STRUCTURE))
        self.noise, self.feature_ids = noise, rng.permutation(n_features)
        # Flatter than the noise: prototypes of frequent features only would be too much alike.
        ranks = _draw(_power_law(n_features, FEATURE_EXPONENT / 2), (n_labels, PROTOTYPE_SIZE), rng)
        self.label_cdf, self.label_ids = _power_law(n_labels, label_exponent), rng.permutation(n_labels)
        self.feature_cdf = _power_law(n_features, FEATURE_EXPONENT)
        self.prototypes = self.feature_ids[ranks].astype(np.int32)

    def draw_rows(
        self, n_rows: int, nnz_per_row: float, labels_per_row: float, rng: np.random.Generator
    ) -> tuple[CSR, CSR]:
        """Draw rows: return X, whose values are counts, and Y."""
        n_features, n_labels = len(self.feature_ids), len(self.label_ids)
        wanted = np.minimum(1 + rng.poisson(labels_per_row - 1, n_rows), n_labels)
        Y = _distinct(wanted, n_labels, lambda of_row: self.label_ids[_draw(self.label_cdf, len(of_row), rng)])
        lengths = nnz_per_row * rng.lognormal(-(LENGTH_SIGMA**2) / 2, LENGTH_SIGMA, n_rows)  # mean nnz_per_row
        wanted = np.clip(np.rint(lengths).astype(np.int64), 1, n_features)
        X = _distinct(wanted, n_features, lambda of_row: self._draw_features(of_row, Y, rng))
        return replace(X, data=rng.lognormal(sigma=COUNT_SIGMA, size=X.nnz).astype(np.float32)), Y

    def _draw_features(self, of_row: np.ndarray, Y: CSR, rng: np.random.Generator) -> np.ndarray:
        """Return a feature for each row number in `of_row`: of the prototype of one of its labels or, as noise, any."""
        drawn = self.feature_ids[_draw(self.feature_cdf, len(of_row), rng)]
        planted = np.flatnonzero(rng.random(len(of_row)) >= self.noise)
        row = of_row[planted]
        label = Y.indices[Y.indptr[row] + (rng.random(len(row)) * np.diff(Y.indptr)[row]).astype(np.int64)]
        drawn[planted] = self.prototypes[label, rng.integers(PROTOTYPE_SIZE, size=len(row))]
        return drawn


def _distinct(wanted: np.ndarray, n_cols: int, draw: Callable[[np.ndarray], np.ndarray]) -> CSR:
    """Return rows of ones with `wanted[i]` distinct columns.

    draw : return a column for each of the row indices that it is given, int64.
    """
    keys = np.empty(0, dtype=np.int64)  # row and column as one number: sorting brings duplicates together
    missing = wanted
    for _ in range(DRAW_ROUNDS):
        of_row = np.repeat(np.arange(len(wanted)), missing)
        keys = np.sort(np.concatenate([keys, of_row * n_cols + draw(of_row)]))
        keys = keys[np.diff(keys, prepend=-1) > 0]  # 50 times faster than np.unique, which hashes first
        counts = np.bincount(keys // n_cols, minlength=len(wanted))
        missing = wanted - counts
        if not missing.any():
            break
    return CSR(pointers(counts), (keys % n_cols).astype(np.int32), np.ones(len(keys), np.float32), n_cols)


def _power_law(n: int, exponent: float) -> np.ndarray:
    """Return the cumulated frequencies of ranks 1..n that fall as rank^-exponent, float64 (n,)."""
    cdf = np.cumsum(np.arange(1, n + 1, dtype=np.float64) ** -exponent)
    return np.asarray(cdf / cdf[-1])


def _draw(cdf: np.ndarray, size: int | tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw ranks, int64 of shape `size`, with the cumulated frequencies `cdf`."""
    return np.searchsorted(cdf, rng.random(size), side="right")


def _scale_to_tf_idf(X: CSR) -> None:
    """Convert counts in place to smoothed TF-IDF with L2 norm 1 per row."""
    values, idf = X.data, smooth_idf(X.column_counts(), X.n_rows)
    values *= idf.astype(np.float32)[X.indices]
    norms = np.sqrt(np.add.reduceat(values**2, X.indptr[:-1]))  # no row is empty
    values /= np.repeat(norms, np.diff(X.indptr))


def _check_counts(**values: int) -> None:
    for name, value in values.items():
        if not is_integer(value) or not 1 <= value <= INT32_MAX:
            raise DataError(f"{name}: must be an integer in [1, {INT32_MAX}], got {shorten(value)}")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not is_number(value) or not low <= value <= high:
        raise DataError(f"{name}: must be a number in [{low}, {high}], got {shorten(value)}")


def _checked_seed(random_state: int) -> int:
    if not is_integer(random_state) or random_state < 0:
        raise DataError(f"random_state: must be an integer of at least 0, got {shorten(random_state)}")
    return int(random_state)
