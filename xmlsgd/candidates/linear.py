"""Linear classifiers: a one-vs-rest SVM for each label, trained on its rows and on hard negatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..data.csr import CSR, pointers
from ..devices.cpu import CPU
from ..devices.cpu.compiling import for_kernels
from ..devices.cpu.kernels.linear_margins import hash_weights, margins
from ..devices.cpu.kernels.linear_training import count_pairs, pack, solve, write_pairs
from ..devices.cpu.kernels.logits import ONE_SCALE
from .knn import check_sound

# Cost of the squared hinge loss, as in LIBLINEAR; 0.5 and 2 differ by 0.2 P@1 (docs/decisions/candidates.md).
C = 1.0
TOLERANCE = 0.04  # stop when the largest step of a pass is smaller
MAX_PASSES = 10  # over the rows of a label; six lose 0.05 P@1 (docs/decisions/candidates.md)
MIN_WEIGHT = 0.05  # smaller weights are dropped: half of them, without a difference in P@k
SLOTS_PER_WEIGHT = 2  # of a hash table; 1.7 and 2.5 differ by a tenth in speed
LABELS = 1 << 12  # calibrated together
CHUNK = 1 << 23  # entries of the rows of labels that are solved together
# Limit of the number of weights: a label with few rows has one for nearly every feature of them, which adds little.
WEIGHTS_PER_ENTRY, MIN_LIMIT = 2, 1 << 26  # weights for each entry of the rows; 512 MB

Tables = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # starts, keys, values and scales (`margins`)


class LinearPredictor:
    """What prediction needs: weights as hash `tables`, and bias float32 (L,)."""

    bias: np.ndarray
    tables: Tables

    def margins(self, X: CSR, labels: np.ndarray, device: CPU) -> np.ndarray:
        """Return the margins of the labels int32 (n, M) of rows of norm 1, float32; -1 where a label is -1."""
        out, sound = np.empty(labels.shape, np.float32), np.empty(len(labels), np.bool_)
        device.run(margins, X.indptr, X.indices, X.data, labels, *self.tables, self.bias, out, sound)
        check_sound(sound)
        return out


@dataclass(frozen=True, eq=False)
class LinearClassifiers(LinearPredictor):
    """Trained classifiers. weights : CSR (L, F). bias : float32 (L,)."""

    weights: CSR
    bias: np.ndarray

    @classmethod
    def fit(cls, X: CSR, Y: CSR, weight: np.ndarray, candidates: np.ndarray, device: CPU) -> LinearClassifiers:
        """Train on rows of norm 1, their labels, and their candidate labels int32 (n, M), the hard negatives.

        weight : float32 (n,), sample weights; rows of weight 0 are left out. True labels are removed from `candidates`.
        """
        pairs, starts, entries = _pairs(X, Y, weight, candidates, device)
        bias = np.full(Y.n_cols, -1, np.float32)
        counts = np.zeros(Y.n_cols, np.int64)
        limit = max_weights(X)
        # Memory is taken page by page as it is written, and the unused rest is given back at the end.
        features, weights = (np.empty(min(limit, entries[-1]), kind) for kind in (np.int32, np.float32))
        first, n = 0, 0
        while first < Y.n_cols:
            last = max(int(np.searchsorted(entries, entries[first] + CHUNK, side="right")) - 1, first + 1)
            labels = np.arange(first, last)
            sizes = np.diff(entries[first : last + 1])
            room = np.zeros(Y.n_cols + 1, np.int64)
            room[first + 1 : last + 1] = np.cumsum(np.minimum(sizes, X.n_cols))
            found = np.empty(room[last], np.int32), np.empty(room[last], np.float32)
            n_pairs = np.diff(starts[first : last + 1])
            device.run(
                solve, labels[np.argsort(-sizes, kind="stable")], starts, pairs, X.indptr, X.indices, X.data, weight,
                np.float32(C), np.float32(TOLERANCE), MAX_PASSES, np.float32(MIN_WEIGHT), X.n_cols,
                int(n_pairs.max()), int((sizes + n_pairs).max()), device.n_threads,
                room, *found, counts, bias,
            )  # fmt: skip
            share = limit * int(entries[last] - entries[first]) // max(int(entries[-1]), 1)
            kept = _largest(found, room[first : last + 1], counts[first:last], share, device)
            features[n : n + len(kept[0])], weights[n : n + len(kept[1])] = kept
            first, n = last, n + len(kept[0])
        features.resize(n, refcheck=False)
        weights.resize(n, refcheck=False)
        indptr = pointers(counts)
        return cls(CSR(indptr, features, weights, X.n_cols), bias)

    def calibrate(self, factor: np.ndarray, shift: np.ndarray) -> LinearClassifiers:
        """Return classifiers with margins factor[l] times the old ones plus shift[l]; changes the weights in place.

        factor, shift : float32 (L,).
        """
        weights = self.weights
        for first in range(0, weights.n_rows, LABELS):
            part = slice(first, first + LABELS)
            span = slice(weights.indptr[first], weights.indptr[min(first + LABELS, weights.n_rows)])
            weights.data[span] *= np.repeat(factor[part], np.diff(weights.indptr[first : first + LABELS + 1]))
        return LinearClassifiers(weights, factor * self.bias + shift)

    @cached_property
    def tables(self) -> Tables:  # type: ignore[override]
        """Return the weights as hash tables, which take twice their memory."""
        weights = self.weights
        starts = table_starts(weights.indptr, SLOTS_PER_WEIGHT)
        keys, values = np.zeros(starts[-1], np.int32), np.zeros(starts[-1], np.float32)
        arrays = map(for_kernels, (weights.indptr, weights.indices, weights.data))
        hash_weights.alone(*arrays, starts, keys, values)
        return starts, keys, values, ONE_SCALE

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the tables, which are rebuilt from them."""
        return {"weights": self.weights, "bias": self.bias}


def table_starts(indptr: np.ndarray, slots_per_weight: float) -> np.ndarray:
    """Return the start of each label's hash table, int64 (L + 1,); each has at least one free slot."""
    return pointers((slots_per_weight * np.diff(indptr)).astype(np.int64) + 1)


def max_weights(X: CSR) -> int:
    """Return the limit of the number of weights that are learned from these rows."""
    return max(WEIGHTS_PER_ENTRY * X.nnz, MIN_LIMIT)


def _largest(
    found: tuple[np.ndarray, np.ndarray], room: np.ndarray, counts: np.ndarray, limit: int, device: CPU
) -> tuple[np.ndarray, np.ndarray]:
    """Return features and weights of all labels without gaps, only the largest if there are more than `limit`.

    Label l has counts[l] weights, from room[l] on; `counts` is updated.
    """
    indptr = pointers(counts)
    features, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    device.run(pack, room[:-1], *found, indptr, features, weights)
    if indptr[-1] <= limit:
        return features, weights
    sizes = np.abs(weights)
    large = sizes > np.partition(sizes, -limit - 1)[-limit - 1]
    counts[:] = np.diff(pointers(large)[indptr])
    return features[large], weights[large]


def _pairs(
    X: CSR, Y: CSR, weight: np.ndarray, candidates: np.ndarray, device: CPU
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs by label (`write_pairs`), the start of each label's, and the cumulated entries of their rows."""
    counts = np.zeros((2, device.n_threads, Y.n_cols), np.int64)
    device.run(count_pairs, Y.indptr, Y.indices, candidates, weight, X.indptr, device.n_threads, *counts)
    starts, entries = (pointers(each.sum(axis=0)) for each in counts)
    places = starts[:-1] + np.cumsum(counts[0], axis=0) - counts[0]
    pairs = np.empty(starts[-1], np.int32)
    device.run(write_pairs, Y.indptr, Y.indices, candidates, weight, places, pairs)
    return pairs, starts, entries
