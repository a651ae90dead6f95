"""Gradient-boosted trees that correct the log odds of the logistic regression."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..devices.cpu import CPU
from ..devices.cpu.kernels.tree_training import BINS, grow
from ..devices.cpu.kernels.trees import INNER, tree_scores

N_META_FEATURES = 5  # inputs of the trees: network logit, share of votes, margin, co-occurrence, label frequency
N_TREES, LEARNING_RATE, L2_REGULARIZATION = 15, 0.3, 30.0


class TreePairs(NamedTuple):
    """Pairs of a held-out row and a label, from which trees learn.

    inputs : those of the trees, float32 (n, N_META_FEATURES); the last one is the label frequency among the rows that
    the base models were trained on. truth : whether the label is true, bool (n,). log_odds : by the regression, float32
    (n,). weights : in the log loss, float64 (n,).
    """

    inputs: np.ndarray
    truth: np.ndarray
    log_odds: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Histogram-based boosted trees that start from the log odds of the logistic regression (Friedman 2001).

    They model interactions of the inputs. As they fit only the residuals of the regression, few held-out rows suffice.

    feature uint8, threshold float32 (T, INNER), value float32 (T, INNER + 1) : the trees, see `tree_scores`.
    frequency : number of training rows with each label, float32 (L,).
    """

    feature: np.ndarray
    threshold: np.ndarray
    value: np.ndarray
    frequency: np.ndarray

    @classmethod
    def fit_spans(cls, pairs: TreePairs, spans: np.ndarray, frequency: np.ndarray, device: CPU) -> list[BoostedTrees]:
        """Fit trees to each span of pairs, and return them in the order of the spans.

        spans : the first pair and the last + 1 of each, int64 (s, 2). frequency : number of rows with each label among
        all training rows, float32 (L,), which prediction uses. The device must have been started.
        """
        size = len(spans), N_TREES
        feature, threshold = np.zeros((*size, INNER), np.uint8), np.zeros((*size, INNER), np.float32)
        value = np.zeros((*size, INNER + 1), np.float32)
        settings = LEARNING_RATE, L2_REGULARIZATION
        device.run(grow, spans, *pairs, _edges(pairs.inputs), *settings, feature, threshold, value)
        return [cls(*arrays, frequency) for arrays in zip(feature, threshold, value, strict=True)]

    def corrected(
        self, log_odds: np.ndarray, labels: np.ndarray, inputs: Iterable[np.ndarray], device: CPU
    ) -> np.ndarray:
        """Return the log odds of the labels plus the values of the trees; arrays are (n, M).

        inputs : `stacking.Inputs`.
        """
        out = log_odds.copy()
        device.run(tree_scores, labels, *inputs, *self.arrays, out)
        return out

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the arrays in the order of the kernels' arguments."""
        return self.frequency, self.feature, self.threshold, self.value


NO_TREES = BoostedTrees(
    np.empty((0, INNER), np.uint8),
    np.empty((0, INNER), np.float32),
    np.empty((0, INNER + 1), np.float32),
    np.empty(0, np.float32),
)


def _edges(inputs: np.ndarray) -> np.ndarray:
    """Return the upper edges of all bins but the last, for each input; ascending, float32 (inputs, BINS - 1).

    Edges are quantiles of all pairs. Equal ones count once; infinities fill the rest.
    """
    ordered = np.sort(inputs, axis=0)
    edges = np.full((inputs.shape[1], BINS - 1), np.inf, np.float32)
    quantiles = ordered[np.linspace(0, len(inputs) - 1, BINS).astype(np.intp)[:-1]]
    for values, most, out in zip(quantiles.T, ordered[-1], edges, strict=True):
        found = np.unique(values[values < most])
        out[: len(found)] = found
    return edges
