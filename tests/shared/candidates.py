"""One CPU, settings of a quick model, equal weights, and classifiers without held-out rows, for tests of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xmlsgd.candidates import CandidateModel, HeldOutPairs
from xmlsgd.candidates.boosted_trees import BoostedTrees, TreePairs
from xmlsgd.candidates.linear import COST, NONE_HELD_OUT, LinearClassifiers, find_pairs
from xmlsgd.candidates.stacking import Inputs
from xmlsgd.data.csr import CSR
from xmlsgd.devices.cpu import CPU

DEVICE = CPU(1, precision="float32")

SETTINGS = {"hidden_layer_sizes": (16,), "random_state": 0, "n_jobs": 1}


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32)


def one_fold(
    labels: np.ndarray, scores: Sequence[np.ndarray], truth: np.ndarray, frequency: np.ndarray, n_rows: int
) -> HeldOutPairs:
    """Return the pairs of a single fold; frequency : of each label without its rows, float32 (L,)."""
    return HeldOutPairs(labels, Inputs(*scores), truth, np.zeros(len(labels), np.int32), frequency[None], n_rows)


def fit_linear(X: CSR, Y: CSR, weight: np.ndarray, candidates: np.ndarray, device: CPU = DEVICE) -> LinearClassifiers:
    """Train classifiers on rows of norm 1, with candidate labels, int32 (n, M), as hard negatives."""
    pairs = find_pairs(X, Y, weight, candidates.copy(), device)
    return LinearClassifiers.fit_and_score(pairs, COST, NONE_HELD_OUT, device)[0]


def fit_trees_to(
    inputs: np.ndarray, truth: np.ndarray, log_odds: np.ndarray, frequency: np.ndarray,
    weights: np.ndarray | None = None,
) -> BoostedTrees:  # fmt: skip
    """Return trees fitted to all of these pairs; `weights` are ones for None."""
    pairs = TreePairs(inputs, truth, log_odds.astype(np.float32), np.ones(len(truth)) if weights is None else weights)
    with DEVICE.start():
        return BoostedTrees.fit_spans(pairs, np.array([[0, len(truth)]]), frequency, DEVICE)[0]


def with_trees(model: CandidateModel, trees: BoostedTrees | None) -> CandidateModel:
    """Return the model with other trees behind its regression, None for none."""
    return replace(model, stacking=model.stacking._replace(trees=trees))
