"""The measures by their definitions, on compared rankings; the package says what they take, return and raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from ..data.validation import is_number, is_whole
from ..errors import DataError, shorten
from .ranking import Ranked, compare, labels_of, top_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .ranking import Matrix


def precision_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> np.ndarray:
    """Return P@1..k = mean_i (1/k) sum_{j<=k} h_ij; the denominator is k also where a row has fewer true labels."""
    ranked = compare(Y_true, predicted, k)
    return _cumulated_mean(ranked.hits) / _ranks(k)


def recall_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> np.ndarray:
    """Return R@1..k = mean_i sum_{j<=k} h_ij / max(n_i, 1)."""
    ranked = compare(Y_true, predicted, k)
    return _cumulated_mean(ranked.hits / _at_least_one(ranked.n_true))


def ndcg_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> np.ndarray:
    """Return nDCG@1..k = mean_i sum_{j<=k} h_ij d_j / sum_{j<=min(k,n_i)} d_j, 0 where n_i = 0."""
    ranked = compare(Y_true, predicted, k)
    return _mean_dcg(ranked.hits, ranked.n_true)


def inverse_propensity(Y_train: Matrix, A: float = 0.55, B: float = 1.5, n_labels: int | None = None) -> np.ndarray:
    """Return q_l = 1 + C (N_l + B)^-A of each label, float64 (L,), with C = (ln N - 1)(B + 1)^A (Jain et al. 2016).

    N counts the training rows, with those without a label; N_l those with label l. Published results use
    A=0.5, B=0.4 for WikiLSHTC-325K, Wikipedia-500K and the WikiTitles sets, A=0.6, B=2.6 for the Amazon sets, the
    defaults elsewhere. `n_labels` > L adds labels that no training row has. Raises `DataError` for N < 3 (C < 0).
    """
    Y = labels_of(Y_train, "Y_train")
    return inverse_propensity_of(np.bincount(Y.indices, minlength=Y.n_cols), Y.n_rows, A, B, n_labels)


def inverse_propensity_of(
    counts: np.ndarray, n_rows: int, A: float = 0.55, B: float = 1.5, n_labels: int | None = None
) -> np.ndarray:
    """Return `inverse_propensity` given N_l, int (L,), and N, the number of training rows."""
    if not (is_number(A) and 0 <= A < np.inf and is_number(B) and 0 < B < np.inf):
        raise DataError(f"A and B: must be numbers, A at least 0 and B above 0, got {shorten(A)} and {shorten(B)}")
    if n_labels is not None and not (is_whole(n_labels) and len(counts) <= n_labels < 1 << 31):
        raise DataError(f"n_labels: must be at least the {len(counts)} labels of training, got {shorten(n_labels)}")
    n_more = 0 if n_labels is None else n_labels - len(counts)
    if n_rows < 3:
        raise DataError(f"propensities: need at least 3 training rows, got {n_rows}")
    C = (np.log(n_rows) - 1) * (B + 1) ** A
    return np.asarray(1 + C * (np.pad(counts, (0, n_more)) + B) ** -A, dtype=np.float64)


def propensities(Y_train: Matrix, A: float = 0.55, B: float = 1.5, n_labels: int | None = None) -> np.ndarray:
    """Return p_l = 1 / q_l, the probability that a true label l was recorded, float64 (L,), as `inverse_propensity`."""
    return 1 / inverse_propensity(Y_train, A, B, n_labels)


def psprecision_at_k(
    Y_true: Matrix, predicted: Matrix, inv_propensity: np.ndarray, k: int = 5, normalize: bool = True
) -> np.ndarray:
    """Return PSP@1..k = mean_i (1/k) sum_{j<=k} q h_ij, divided by that of the best ranking if `normalize`.

    The best ranking has the true labels by falling q. The quotient is one of two means, as published; without
    `normalize` the values may exceed 1.
    """
    ranked = compare(Y_true, predicted, k)
    gains, best = _gains(ranked, inv_propensity)
    return _relative(_cumulated_mean(gains) / _ranks(k), _cumulated_mean(best) / _ranks(k), normalize)


def psrecall_at_k(
    Y_true: Matrix, predicted: Matrix, inv_propensity: np.ndarray, k: int = 5, normalize: bool = True
) -> np.ndarray:
    """Return PSR@1..k = mean_i sum_{j<=k} q h_ij / max(n_i, 1), divided by that of the best ranking if `normalize`."""
    ranked = compare(Y_true, predicted, k)
    gains, best = _gains(ranked, inv_propensity)
    n_true = _at_least_one(ranked.n_true)
    return _relative(_cumulated_mean(gains / n_true), _cumulated_mean(best / n_true), normalize)


def psndcg_at_k(
    Y_true: Matrix, predicted: Matrix, inv_propensity: np.ndarray, k: int = 5, normalize: bool = True
) -> np.ndarray:
    """Return PSnDCG@1..k = mean_i sum_{j<=k} q h_ij d_j / sum_{j<=min(k,n_i)} d_j, over the best if `normalize`."""
    ranked = compare(Y_true, predicted, k)
    gains, best = _gains(ranked, inv_propensity)
    return _relative(_mean_dcg(gains, ranked.n_true), _mean_dcg(best, ranked.n_true), normalize)


def macro_precision_at_k(
    Y_true: Matrix, predicted: Matrix, k: int = 5, labels: Literal["all", "seen"] = "all"
) -> np.ndarray:
    """Return the mean over labels of tp / (tp + fp) in the top 1..k, with 0/0 = 0; `labels` as in `macro_f1_at_k`."""
    ranked = compare(Y_true, predicted, k)
    return _macro(ranked, labels, lambda hit, predicted, true: (hit, predicted))


def macro_recall_at_k(
    Y_true: Matrix, predicted: Matrix, k: int = 5, labels: Literal["all", "seen"] = "all"
) -> np.ndarray:
    """Return the mean over labels of tp / (tp + fn) in the top 1..k, with 0/0 = 0; `labels` as in `macro_f1_at_k`."""
    ranked = compare(Y_true, predicted, k)
    return _macro(ranked, labels, lambda hit, predicted, true: (hit, true))


def macro_f1_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5, labels: Literal["all", "seen"] = "all") -> np.ndarray:
    """Return the mean over labels of 2 tp / (2 tp + fp + fn) within the top 1..k, with 0/0 = 0.

    The mean goes over all L labels, or with `labels="seen"` over those that a row of `Y_true` has.
    """
    ranked = compare(Y_true, predicted, k)
    return _macro(ranked, labels, lambda hit, predicted, true: (2 * hit, predicted + true))


def micro_f1_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> np.ndarray:
    """Return 2 TP / (2 TP + FP + FN) within the top 1..k, each summed over labels, with 0/0 = 0."""
    ranked = compare(Y_true, predicted, k)
    n_hits = np.cumsum(ranked.hits.sum(axis=0))
    n_predicted = np.cumsum((ranked.labels >= 0).sum(axis=0))
    return _quotient(2 * n_hits, n_predicted + ranked.Y.nnz)


def coverage_at_k(Y_true: Matrix, predicted: Matrix, k: int = 5) -> np.ndarray:
    """Return the labels found at least once within rank 1..k over the labels that occur in `Y_true`, with 0/0 = 0."""
    ranked = compare(Y_true, predicted, k)
    n_found = [np.count_nonzero(hit) for hit, _ in _per_label(ranked)]
    return _quotient(np.array(n_found), np.full(k, np.count_nonzero(np.bincount(ranked.Y.indices))))


def evaluate_ranking(
    Y_true: Matrix,
    predicted: Matrix,
    Y_train: Matrix | None = None,
    ks: Sequence[int] = (1, 3, 5),
    A: float = 0.55,
    B: float = 1.5,
    inv_propensity: np.ndarray | None = None,
) -> dict[str, float]:
    """Return the usual table in percent: "P@1", "P@3", ..., "nDCG@5", "R@5".

    Given `Y_train` or `inv_propensity` also "PSP@1", ...: by `inverse_propensity(Y_train, A, B)`, where labels of
    `Y_true` beyond those of `Y_train` count as never trained, or by q_l of each label, float (L,), of a model
    `model.inverse_propensity(n_labels=Y_true.shape[1])`.
    """
    if Y_train is not None and inv_propensity is not None:
        raise DataError("inv_propensity: must be given without Y_train, got both")
    k = max(ks, default=0)
    if min(ks, default=0) < 1:
        raise DataError(f"ks: must be integers of at least 1, got {shorten(ks)}")
    ranking = compare(Y_true, predicted, k)
    values = {
        "P": precision_at_k(ranking.Y, ranking.labels, k),
        "nDCG": ndcg_at_k(ranking.Y, ranking.labels, k),
        "R": recall_at_k(ranking.Y, ranking.labels, k),
    }
    if Y_train is not None:
        inv_propensity = inverse_propensity(Y_train, A, B, n_labels=ranking.Y.n_cols)
    if inv_propensity is not None:
        values["PSP"] = psprecision_at_k(ranking.Y, ranking.labels, inv_propensity, k)
    return {f"{name}@{at}": 100 * float(vector[at - 1]) for name, vector in values.items() for at in ks}


def _ranks(k: int) -> np.ndarray:
    """Return 1..k."""
    return np.arange(1, k + 1)


def _at_least_one(n_true: np.ndarray) -> np.ndarray:
    """Return max(n_i, 1) as a column."""
    return np.maximum(n_true, 1)[:, None]


def _cumulated_mean(gains: np.ndarray) -> np.ndarray:
    """Return mean_i sum_{j<=k} gains_ij for each k."""
    return np.cumsum(gains.mean(axis=0, dtype=np.float64))


def _mean_dcg(gains: np.ndarray, n_true: np.ndarray) -> np.ndarray:
    """Return mean_i sum_{j<=k} gains_ij d_j / sum_{j<=min(k,n_i)} d_j for each k; rows with n_i = 0 have no gains."""
    k = gains.shape[1]
    d = 1 / np.log2(_ranks(k) + 1)
    ideal = np.cumsum(d)[np.minimum(_at_least_one(n_true), _ranks(k)) - 1]
    return np.asarray((np.cumsum(gains * d, axis=1) / ideal).mean(axis=0))


def _gains(ranked: Ranked, inv_propensity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return q h of the ranking and of the best possible one, both float64 (n, k)."""
    q = np.asarray(inv_propensity, dtype=np.float64)
    if q.shape != (ranked.Y.n_cols,):
        raise DataError(f"inv_propensity: must have a value for each of {ranked.Y.n_cols} labels, got shape {q.shape}")
    if not (np.isfinite(q).all() and (q > 0).all()):
        raise DataError("inv_propensity: must be positive and finite, got others")
    best = top_of_rows(ranked.Y.indptr, ranked.Y.indices, q[ranked.Y.indices], ranked.labels.shape[1])
    return np.where(ranked.hits, q[ranked.labels], 0.0), np.where(best >= 0, q[best], 0.0)


def _relative(values: np.ndarray, best: np.ndarray, normalize: bool) -> np.ndarray:
    """Return `values`, or if `normalize` their quotient by those of the best ranking."""
    return _quotient(values, best) if normalize else values


def _quotient(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Return numerator / denominator, float64, with 0/0 = 0."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator != 0)


def _per_label(ranked: Ranked) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each k how often each label is found, and how often predicted, within rank k: both int64 (L,)."""
    n_hits = np.zeros(ranked.Y.n_cols, dtype=np.int64)
    n_predicted = np.zeros(ranked.Y.n_cols, dtype=np.int64)
    for labels, hits in zip(ranked.labels.T, ranked.hits.T, strict=True):
        n_hits += np.bincount(labels[hits], minlength=len(n_hits))
        n_predicted += np.bincount(labels[labels >= 0], minlength=len(n_hits))
        yield n_hits, n_predicted


def _macro(ranked: Ranked, labels: str, fraction: Callable[..., tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the mean over labels of `fraction(hits, predicted, true)` for each k."""
    n_true = np.bincount(ranked.Y.indices, minlength=ranked.Y.n_cols)
    if labels not in ("all", "seen"):
        raise DataError(f'labels: must be "all" or "seen", got {shorten(labels)}')
    chosen = n_true > 0 if labels == "seen" else np.ones(len(n_true), dtype=bool)
    sums = [_quotient(*fraction(hit, predicted, n_true))[chosen].sum() for hit, predicted in _per_label(ranked)]
    return np.array(sums) / max(np.count_nonzero(chosen), 1)
