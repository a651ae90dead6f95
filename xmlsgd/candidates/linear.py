"""The linear path: weights from features straight to labels, each label's from rows that it is confused with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..data.csr import CSR, pointers
from ..devices.cpu import CPU
from ..devices.cpu.compiling import for_kernels
from ..devices.cpu.kernels.linear import count_pairs, pack, solve, write_pairs
from ..devices.cpu.kernels.margins import hash_weights, margins
from ..devices.cpu.kernels.pairs import ONE_SCALE
from .knn import check_sound

# Cost of a row on the wrong side of its margin, per square of the distance; 0.5 and 2 differ by 0.2 at P@1
# (docs/decisions/shortlist.md).
C = 1.0
TOLERANCE = 0.04  # of the steps of a pass
PASSES = 10  # at most, over a label's rows; six lose 0.05 at P@1 (docs/decisions/shortlist.md)
SMALLEST = 0.05  # weights below it are left out: half of them, without a difference in P@k
ROOM = 2  # places of a hash table for each weight: 1.7 and 2.5 differ by a tenth in speed
LABELS = 1 << 12  # whose weights are calibrated together
CHUNK = 1 << 23  # entries of labels that are solved together
# Weights kept at most: of a label with few rows nearly every feature of these has one, which says little.
PER_ENTRY, LEAST_KEPT = 2, 1 << 26  # for each entry of the rows, or 512 MB

Tables = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # starts, keys, values and scales (`margins`)


class Margins:
    """What a linear path predicts with: `tables`, as kernels want them, and bias float32 (L,)."""

    bias: np.ndarray
    tables: Tables

    def margins(self, X: CSR, labels: np.ndarray, device: CPU) -> np.ndarray:
        """Return the margins of the labels int32 (n, M) of rows of norm 1, float32; -1 where a label is -1."""
        out, sound = np.empty(labels.shape, np.float32), np.empty(len(labels), np.bool_)
        device.run(margins, X.indptr, X.indices, X.data, labels, *self.tables, self.bias, out, sound)
        check_sound(sound)
        return out


@dataclass(frozen=True, eq=False)
class Linear(Margins):
    """weights : CSR (L, F). bias : float32 (L,)."""

    weights: CSR
    bias: np.ndarray

    @classmethod
    def fit(cls, X: CSR, Y: CSR, weight: np.ndarray, shortlist: np.ndarray, device: CPU) -> Linear:
        """Learn from rows of norm 1, their labels, and the labels (n, M) that might be taken for theirs.

        weight : float32 (n,), rows of weight 0 are left out. `shortlist` loses the labels that its row has.
        """
        pairs, starts, entries = _pairs(X, Y, weight, shortlist, device)
        bias = np.full(Y.n_cols, -1, np.float32)
        counts = np.zeros(Y.n_cols, np.int64)
        most = most_weights(X)
        # Pages are taken as they are written, and what is left over goes back at the end.
        features, weights = (np.empty(min(most, entries[-1]), kind) for kind in (np.int32, np.float32))
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
                np.float32(C), np.float32(TOLERANCE), PASSES, np.float32(SMALLEST), X.n_cols,
                int(n_pairs.max()), int((sizes + n_pairs).max()), device.n_threads,
                room, *found, counts, bias,
            )  # fmt: skip
            share = most * int(entries[last] - entries[first]) // max(int(entries[-1]), 1)
            kept = _largest(found, room[first : last + 1], counts[first:last], share, device)
            features[n : n + len(kept[0])], weights[n : n + len(kept[1])] = kept
            first, n = last, n + len(kept[0])
        features.resize(n, refcheck=False)
        weights.resize(n, refcheck=False)
        indptr = pointers(counts)
        return cls(CSR(indptr, features, weights, X.n_cols), bias)

    def calibrate(self, factor: np.ndarray, shift: np.ndarray) -> Linear:
        """Return the path with margins of label l factor[l] times what they were, plus shift[l]; the weights change.

        factor, shift : float32 (L,).
        """
        weights = self.weights
        for first in range(0, weights.n_rows, LABELS):
            part = slice(first, first + LABELS)
            span = slice(weights.indptr[first], weights.indptr[min(first + LABELS, weights.n_rows)])
            weights.data[span] *= np.repeat(factor[part], np.diff(weights.indptr[first : first + LABELS + 1]))
        return Linear(weights, factor * self.bias + shift)

    @cached_property
    def tables(self) -> Tables:  # type: ignore[override]
        """Return the weights as hash tables, which take twice their memory."""
        weights = self.weights
        starts = table_starts(weights.indptr, ROOM)
        keys, values = np.zeros(starts[-1], np.int32), np.zeros(starts[-1], np.float32)
        arrays = map(for_kernels, (weights.indptr, weights.indices, weights.data))
        hash_weights.alone(*arrays, starts, keys, values)
        return starts, keys, values, ONE_SCALE

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: the tables are made anew from them."""
        return {"weights": self.weights, "bias": self.bias}


def table_starts(indptr: np.ndarray, room: float) -> np.ndarray:
    """Return where the table of each label begins, int64 (L + 1,), with `room` places a weight and one more."""
    return pointers((room * np.diff(indptr)).astype(np.int64) + 1)


def most_weights(X: CSR) -> int:
    """Return how many weights are kept at most of those learned from these rows."""
    return max(PER_ENTRY * X.nnz, LEAST_KEPT)


def _largest(
    found: tuple[np.ndarray, np.ndarray], room: np.ndarray, counts: np.ndarray, most: int, device: CPU
) -> tuple[np.ndarray, np.ndarray]:
    """Return features and weights of all labels without gaps, of more than `most` only the largest; counts are renewed.

    The first counts[l] from room[l] on are those of label l.
    """
    indptr = pointers(counts)
    features, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    device.run(pack, room[:-1], *found, indptr, features, weights)
    if indptr[-1] <= most:
        return features, weights
    sizes = np.abs(weights)
    large = sizes > np.partition(sizes, -most - 1)[-most - 1]
    counts[:] = np.diff(pointers(large)[indptr])
    return features[large], weights[large]


def _pairs(
    X: CSR, Y: CSR, weight: np.ndarray, shortlist: np.ndarray, device: CPU
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs by label (`write_pairs`), where each label's begin, and the sums of their rows' entries."""
    counts = np.zeros((2, device.n_threads, Y.n_cols), np.int64)
    device.run(count_pairs, Y.indptr, Y.indices, shortlist, weight, X.indptr, device.n_threads, *counts)
    starts, entries = (pointers(each.sum(axis=0)) for each in counts)
    places = starts[:-1] + np.cumsum(counts[0], axis=0) - counts[0]
    pairs = np.empty(starts[-1], np.int32)
    device.run(write_pairs, Y.indptr, Y.indices, shortlist, weight, places, pairs)
    return pairs, starts, entries
