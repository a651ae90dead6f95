"""The scorer of a network with candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...candidates import CandidateModel, check_sound
from ...candidates.model import Logits, n_in_prediction, n_with_margins
from ...data.csr import CSR
from ...devices.cpu import CPU
from ...devices.cpu.compiling import for_kernels
from ...devices.cpu.kernels.candidates import DAMAGED, best_candidates
from ...devices.cpu.kernels.logits import pair_logits
from ...devices.cpu.kernels.topk import merge_best
from ...devices.cpu.search import weights_of
from .rankings import best_of_all
from .scorer import FILLED_K, Scorer, row_ranges

NO_ACTIVATIONS = np.empty((0, 1), np.float32)
ROWS_A_CALL = 1 << 16  # about three seconds on one thread: Ctrl-C has to wait for the end of a kernel


@dataclass(eq=False)
class CandidateScorer(Scorer):
    """A scorer that stacks the scores of a network and of candidates (`CandidateModel`)."""

    candidates: CandidateModel
    cpu: CPU

    min_k: ClassVar[int] = 8  # not more: a row with fewer candidates takes as long as an exact search

    @property
    def max_k(self) -> int:
        """Return the largest k for which only candidates are ranked: half of them, as others may beat the rest."""
        return n_in_prediction(self.candidates.n_voted) // 2

    @cached_property
    def _learned(self) -> tuple[Any, ...]:
        """The arguments of `best_candidates` that belong to the model."""
        first = weights_of(self.host_layers[0])
        if not self._in_one_call:
            first = tuple(part[:0] for part in first)
        learned = *first, *weights_of(self.output), *self.candidates.kernel_arguments()
        return tuple(for_kernels(each) if isinstance(each, np.ndarray) else each for each in learned)

    def top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k labels of each row, int32 (n, k), and their scores, float32 (n, k).

        Usually only candidates are ranked. A row with fewer than k candidates is filled up with the labels that the
        network ranks highest. For k above `max_k`, these labels compete with the candidates in all rows. All labels are
        scored if `columns` is given or k is large.
        """
        if columns is not None or k > max(self.max_k, FILLED_K):
            return best_of_all(self, X, k, columns)
        m = k if k <= self.max_k else max(k, n_in_prediction(self.candidates.n_voted))
        labels, scores = np.empty((X.n_rows, m), np.int32), np.empty((X.n_rows, m), np.float32)
        with self.cpu.start():
            for part, A, span in self._parts(X):
                self.cpu.run_converted(
                    best_candidates, *map(for_kernels, (part.indptr, part.indices, part.data)), A, *self._learned,
                    *self.candidates.knn.scratch(self.cpu), n_with_margins(self.candidates.n_voted, m), labels[span],
                    scores[span],
                )  # fmt: skip
        if labels.min(initial=0) < 0 or k > self.max_k:
            check_sound(labels[:, 0] != DAMAGED)
            few = np.flatnonzero((labels[:, k - 1] < 0) | (k > self.max_k))
            for rows in row_ranges(len(few), 32 * m):
                rows = few[rows]
                labels[rows, :k], scores[rows, :k] = self._filled_up(X.take(rows), labels[rows], scores[rows], k)
        return np.ascontiguousarray(labels[:, :k]), np.ascontiguousarray(scores[:, :k])

    @property
    def _in_one_call(self) -> bool:
        """Return whether `best_candidates` also computes the activations, so that one kernel does everything."""
        return self.device is self.cpu and len(self.network.hidden) == 1

    def _parts(self, X: CSR) -> Iterator[tuple[CSR, np.ndarray, slice]]:
        """Yield blocks of rows, their activations (empty if `best_candidates` computes them), and their span."""
        if not self._in_one_call:
            for rows, A in self.activations(X):
                span = slice(rows[0], rows[-1] + 1)
                yield X.span(span.start, span.stop), A, span
            return
        for first in range(0, X.n_rows, ROWS_A_CALL):
            span = slice(first, min(first + ROWS_A_CALL, X.n_rows))
            # `span` is avoided for a single block: for a single row it would take 9 microseconds.
            yield X if X.n_rows <= ROWS_A_CALL else X.span(span.start, span.stop), NO_ACTIVATIONS, span

    def _filled_up(self, X: CSR, labels: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k labels and their scores, given all candidates (n, m), -1 for none, and their scores."""
        floor = self.candidates.non_candidates.logits_of(scores[:, k - 1])  # others need more to be among the best
        others, Z = self._best_logits(X, min(k + labels.shape[1], self.network.n_labels), floor=floor)
        best, found = np.empty((len(labels), k), np.int32), np.empty((len(labels), k), np.float32)
        with self.cpu.start():
            self.cpu.run(merge_best, labels, scores, others, self._scores_of_others(Z, labels), best, found)
        return best, found

    def logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of row indices and their stacked scores (rows, L), or (rows, m) for m columns."""
        for rows, Z in super().logits(X, columns):
            whole = np.full((len(rows), self.network.n_labels), np.nan, np.float32)
            part, of_pairs = X.span(rows[0], rows[-1] + 1), logits_of_pairs(self, self.cpu)
            labels, scores = self.candidates.score(part, of_pairs, self.cpu)
            row, j = np.nonzero(labels >= 0)
            whole[row, labels[row, j]] = scores[row, j]
            listed = whole if columns is None else whole[:, columns]
            yield rows, np.where(np.isnan(listed), self._scores_of_others(Z, labels), listed)

    def _scores_of_others(self, Z: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the scores of labels as if they were not candidates, given their logits (n, m).

        labels : the candidates of each row, int32 (n, M), -1 for none. In a row without any, such as one without known
        features, scores are the logits themselves, as stacking has seen no such row.
        """
        has_candidates = (labels >= 0).any(axis=1, keepdims=True)
        return np.where(has_candidates, self.candidates.non_candidates.log_odds(Z), Z)


def logits_of_pairs(scorer: Scorer, cpu: CPU) -> Logits:
    """Return a function that computes the logits of some labels per row by the network of a scorer."""

    def logits(X: CSR, labels: np.ndarray) -> np.ndarray:
        output, out = weights_of(scorer.output), np.empty(labels.shape, np.float32)
        for rows, A in scorer.activations(X):
            span = slice(rows[0], rows[-1] + 1)
            with cpu.start():
                cpu.run(pair_logits, A, *output, labels[span], out[span])
        return out

    return logits
