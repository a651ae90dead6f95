"""Propensity-scored metrics, which count rare labels more (Jain et al. 2016)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..data.validation import as_vector, is_integer, is_number
from ..errors import DataError, shorten
from .comparison import Compared, Matrix, compare, labels_of, quotient, top_of_rows
from .ranking import cumulated_mean, mean_dcg

MAX_INVERSE = 1e100  # sums of larger inverse propensities could overflow
MAX_A, MAX_B = 10, 1e20  # (B + 1)^A must not overflow


def inverse_propensity(
    Y_train: Matrix, A: float = 0.55, B: float = 1.5, n_labels: int | None = None
) -> NDArray[np.float64]:
    """Compute the inverse propensity of each label: q_l = 1 + C (N_l + B)^-A with C = (ln N - 1)(B + 1)^A.

    Parameters
    ----------
    Y_train : sparse or dense matrix of shape (N, L)
        Labels of the training rows, including rows without labels. N_l is the number of rows with label l.
    A, B : float
        Published results use A=0.5, B=0.4 for WikiLSHTC-325K, Wikipedia-500K and the WikiTitles sets, A=0.6, B=2.6 for
        the Amazon sets, and the defaults elsewhere.
    n_labels : int, optional
        If larger than L, the labels from L on count as labels that no training row has.

    Returns
    -------
    ndarray of shape (L,) or (n_labels,)
        Values of at least 1; the propensity is 1 / q_l.

    Raises
    ------
    DataError
        If N < 3 (C would be negative), or if an argument is out of range.
    """
    Y = labels_of(Y_train, "Y_train")
    return inverse_propensity_of(Y.column_counts(), Y.n_rows, A, B, n_labels)


def inverse_propensity_of(
    counts: np.ndarray, n_rows: int, A: float = 0.55, B: float = 1.5, n_labels: int | None = None
) -> NDArray[np.float64]:
    """Return `inverse_propensity`, given N_l, (L,), and N, the number of training rows."""
    if not (is_number(A) and 0 <= A <= MAX_A and is_number(B) and 0 < B <= MAX_B):
        wanted = f"must be numbers, A in [0, {MAX_A}] and B in (0, {MAX_B:g}]"
        raise DataError(f"A and B: {wanted}, got {shorten(A)} and {shorten(B)}")
    if n_labels is not None and not (is_integer(n_labels) and len(counts) <= n_labels < 1 << 31):
        raise DataError(f"n_labels: must be at least the {len(counts)} labels of training, got {shorten(n_labels)}")
    n_more = 0 if n_labels is None else n_labels - len(counts)
    if n_rows < 3:
        raise DataError(f"propensities: need at least 3 training rows, got {n_rows}")
    C = (np.log(n_rows) - 1) * (B + 1) ** A
    return np.asarray(1 + C * (np.pad(counts, (0, n_more)) + float(B)) ** -A, dtype=np.float64)


def psprecision_at_k(Y_true: Matrix, predicted: Matrix, inv_propensity: np.ndarray, k: int = 5) -> NDArray[np.float64]:
    """Compute propensity-scored precision at 1..k: PSP@k = mean_i (1/k) sum_{j<=k} q h_ij.

    All propensity-scored metrics are divided by the value of the best possible ranking, which has the true labels in
    order of decreasing q: a ratio of two means, as in published results.

    Parameters
    ----------
    Y_true, predicted, k
        As in `precision_at_k`.
    inv_propensity : ndarray of shape (L,)
        q_l of each label, as `inverse_propensity` returns it.

    Returns
    -------
    ndarray of shape (k,)
        The metric at 1..k.

    Raises
    ------
    DataError
        If the inputs do not fit each other.
    """
    compared = compare(Y_true, predicted, k)
    ranks = np.arange(1, k + 1)
    gains, best = (cumulated_mean(each) / ranks for each in _gains(compared, inv_propensity))
    return quotient(gains, best)


def psrecall_at_k(Y_true: Matrix, predicted: Matrix, inv_propensity: np.ndarray, k: int = 5) -> NDArray[np.float64]:
    """Compute propensity-scored recall at 1..k: PSR@k = mean_i sum_{j<=k} q h_ij / max(n_i, 1).

    Parameters, result and errors are those of `psprecision_at_k`.
    """
    compared = compare(Y_true, predicted, k)
    gains, best = (cumulated_mean(each / compared.at_least_one) for each in _gains(compared, inv_propensity))
    return quotient(gains, best)


def psndcg_at_k(Y_true: Matrix, predicted: Matrix, inv_propensity: np.ndarray, k: int = 5) -> NDArray[np.float64]:
    """Compute propensity-scored nDCG at 1..k: mean_i sum_{j<=k} q h_ij d_j / sum_{j<=min(k,n_i)} d_j.

    Parameters, result and errors are those of `psprecision_at_k`.
    """
    compared = compare(Y_true, predicted, k)
    gains, best = (mean_dcg(each, compared.at_least_one) for each in _gains(compared, inv_propensity))
    return quotient(gains, best)


def _gains(compared: Compared, inv_propensity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return q h of the ranking and of the best possible ranking, both float64 (n, k)."""
    Y, labels = compared.Y, compared.labels
    q = as_vector(inv_propensity, Y.n_cols, "inv_propensity")
    bad = q[~((q > 0) & (q <= MAX_INVERSE))]
    if len(bad):
        raise DataError(f"inv_propensity: must be above 0 and at most {MAX_INVERSE:g}, got {bad[0]}")
    best = top_of_rows(Y.indptr, Y.indices, q[Y.indices], labels.shape[1])
    return np.where(compared.hits, q[labels], 0.0), np.where(best >= 0, q[best], 0.0)
