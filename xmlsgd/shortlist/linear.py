"""The linear path: weights from features straight to labels, each label's from rows that it is confused with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..csr import CSR
from ..devices.cpu import CPU
from ..devices.cpu_linear import drop_true, margins, pair_starts, solve, write_pairs

C = 1.0  # cost of a row that is on the wrong side of its margin, per square of the distance
TOLERANCE = 0.1  # of the projected gradient
PASSES = 10  # at most, over a label's rows
SMALLEST = 0.05  # weights below it are left out: half of them, without a difference in P@k
CHUNK = 1 << 23  # entries of labels that are solved together


@dataclass(frozen=True, eq=False)
class Linear:
    """weights : CSR (L, F). bias : float32 (L,)."""

    weights: CSR
    bias: np.ndarray

    @classmethod
    def fit(cls, X: CSR, Y: CSR, weight: np.ndarray, shortlist: np.ndarray, device: CPU) -> Linear:
        """Learn from rows of norm 1, their labels, and the labels (n, M) that might be taken for theirs.

        weight : float32 (n,), rows of weight 0 are left out. `shortlist` loses the labels that its row has.
        """
        device.run(drop_true, Y.indptr, Y.indices, shortlist)
        starts, entries = np.zeros(Y.n_cols + 1, np.int64), np.zeros(Y.n_cols + 1, np.int64)
        device.run(pair_starts, Y.indptr, Y.indices, shortlist, weight, X.indptr, starts, entries, alone=True)
        pairs = np.empty(starts[-1], np.int32)
        device.run(write_pairs, Y.indptr, Y.indices, shortlist, weight, starts[:-1].copy(), pairs, alone=True)
        bias = np.full(Y.n_cols, -1, np.float32)
        counts = np.zeros(Y.n_cols, np.int64)
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        first = 0
        while first < Y.n_cols:
            last = max(int(np.searchsorted(entries, entries[first] + CHUNK, side="right")) - 1, first + 1)
            labels = np.arange(first, last)
            sizes = np.diff(entries[first : last + 1])
            room = np.zeros(Y.n_cols + 1, np.int64)
            room[first + 1 : last + 1] = np.cumsum(np.minimum(sizes, X.n_cols))
            features, weights = np.empty(room[last], np.int32), np.empty(room[last], np.float32)
            device.run(
                solve, labels[np.argsort(-sizes, kind="stable")], starts, pairs, X.indptr, X.indices, X.data, weight,
                np.float32(C), np.float32(TOLERANCE), PASSES, np.float32(SMALLEST), X.n_cols,
                int(np.diff(starts[first : last + 1]).max()), int(sizes.max()), device.n_threads,
                room, features, weights, counts, bias,
            )  # fmt: skip
            taken = np.arange(room[last]) - np.repeat(room[first:last], np.diff(room[first : last + 1]))
            kept = taken < np.repeat(counts[first:last], np.diff(room[first : last + 1]))
            parts.append((features[kept], weights[kept]))
            first = last
        indptr = np.concatenate([[0], np.cumsum(counts)])
        features, weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls(CSR(indptr, features, weights, X.n_cols), bias)

    def margins(self, X: CSR, labels: np.ndarray, device: CPU) -> np.ndarray:
        """Return the margins of the labels int32 (n, M) of rows of norm 1, float32; -1 where a label is -1."""
        out = np.empty(labels.shape, np.float32)
        weights = self.weights
        device.run(
            margins, X.indptr, X.indices, X.data, labels, weights.indptr, weights.indices, weights.data, self.bias, out
        )
        return out
