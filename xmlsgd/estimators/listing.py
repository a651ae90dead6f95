"""A network with a shortlist: how it is learned, on rows of which some are left to the blend, and how it scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.cpu import CPU
from ..devices.cpu_pairs import best_pairs, pair_logits
from ..shortlist import Shortlist, fit_shortlist, held_out_rows
from .scoring import Scorer
from .training import row_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..csr import CSR
    from .fitting import Task


@dataclass(frozen=True, eq=False)
class Listing:
    """A shortlist to be: the task for the network, in which rows of `held_out` weigh nothing."""

    task: Task
    weight: np.ndarray | None
    held_out: np.ndarray

    @classmethod
    def begin(cls, task: Task, seed: int) -> Listing:
        """Choose the rows that neither path may learn."""
        held_out = held_out_rows(task.n_rows, seed)
        if not len(held_out):
            return cls(task, task.weight, held_out)
        learned = np.ones(task.n_rows, np.float32) if task.weight is None else task.weight.copy()
        learned[held_out] = 0
        return cls(replace(task, weight=learned), task.weight, held_out)

    def finish(self, params: np.ndarray) -> Shortlist:
        """Learn the shortlist of a network with these parameters."""
        task, cpu = self.task, cpu_of(self.task.device, self.task.n_threads)
        logits = pair_scores(Scorer(task.network, params, task.device), cpu)
        return fit_shortlist(task.dataset, self.weight, self.held_out, task.listed, logits, cpu)


@dataclass(eq=False)
class ListScorer(Scorer):
    """A network with a shortlist, whose scores are those of the blend; see `Shortlist`."""

    shortlist: Shortlist
    cpu: CPU

    def top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k labels of each row's shortlist and their scores.

        All labels are scored where the shortlist has fewer than k, and where only `columns` count.
        """
        labels, scores = np.full((X.n_rows, k), -1, np.int32), np.full((X.n_rows, k), -np.inf, np.float32)
        few = np.arange(X.n_rows)
        if columns is None and k <= self.shortlist.size:
            for rows in row_blocks(X.n_rows, (4 * self.shortlist.size,)):
                span = slice(rows[0], rows[-1] + 1)
                listed, blended = self._listed(X.span(span.start, span.stop))
                with self.cpu.start():
                    self.cpu.run(best_pairs, listed, blended, labels[span], scores[span])
            few = np.flatnonzero(labels[:, k - 1] < 0)
        named = np.arange(self.network.n_labels) if columns is None else np.unique(columns)
        for rows, Z in self.logits(X.take(few), columns=named):
            order = np.argsort(-Z, axis=1, kind="stable")[:, :k]
            span = slice(0, order.shape[1])
            labels[few[rows], span] = named[order]
            scores[few[rows], span] = np.take_along_axis(Z, order, axis=1)
        return labels, scores

    def logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield row numbers and their blended scores (rows, L), or (rows, m) of m columns, a block at a time."""
        for rows, Z in super().logits(X, columns):
            whole = np.full((len(rows), self.network.n_labels), np.nan, np.float32)
            labels, scores = self._listed(X.span(rows[0], rows[-1] + 1))
            row, j = np.nonzero(labels >= 0)
            whole[row, labels[row, j]] = scores[row, j]
            listed = whole if columns is None else whole[:, columns]
            yield rows, np.where(np.isnan(listed), self.shortlist.unlisted(Z), listed)

    def _listed(self, X: CSR) -> tuple[np.ndarray, np.ndarray]:
        return self.shortlist.scored(X, pair_scores(self, self.cpu), self.cpu)


def pair_scores(scorer: Scorer, cpu: CPU) -> Callable[[CSR, np.ndarray], np.ndarray]:
    """Return what gives the network's logits of the labels int32 (n, M) of each row, float32; 0 where a label is -1."""

    def logits(X: CSR, labels: np.ndarray) -> np.ndarray:
        network, layers = scorer.network, scorer.network.layers(scorer.params)
        out = np.empty(labels.shape, np.float32)
        for rows in row_blocks(X.n_rows, network.hidden):
            with scorer.device.start():
                A = network.hidden_activations(scorer.device, layers, X, rows)
            span = slice(rows[0], rows[-1] + 1)
            with cpu.start():
                cpu.run(pair_logits, A, layers[-1].W, layers[-1].b, labels[span], out[span])
        return out

    return logits


def cpu_of(device: Any, n_threads: int) -> CPU:
    """Return the device that does what a shortlist needs: this one if it is a CPU."""
    return device if isinstance(device, CPU) else CPU(n_threads)
