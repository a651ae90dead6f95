"""Stacking by gradient-boosted trees: the scores of the base models and the label's frequency in, log odds out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..devices.cpu import CPU
from ..devices.cpu.kernels.trees import DEPTH, INNER, tree_scores

N_META_FEATURES = 5  # inputs of a tree: network logit, share of votes, margin, co-occurrence, label frequency
# 30 trees with a learning rate of 0.2 lose 0.05 P@1, 150 with 0.07 gain nothing (docs/decisions/candidates.md).
N_TREES, LEARNING_RATE, L2_REGULARIZATION = 50, 0.15, 10.0


@dataclass(frozen=True, eq=False)
class BoostedStacking:
    """Trees for the log odds that a label is true (Friedman 2001), learned on histograms as in LightGBM.

    feature uint8, threshold float32 (T, INNER), value float32 (T, INNER + 1) : see `tree_scores`. frequency : float32
    (L,), rows with each label when the trees were learned.
    """

    feature: np.ndarray
    threshold: np.ndarray
    value: np.ndarray
    frequency: np.ndarray

    @classmethod
    def fit(cls, features: np.ndarray, truth: np.ndarray, frequency: np.ndarray, n_threads: int) -> BoostedStacking:
        """Return trees that predict `truth` bool (n,) from `features` float32 (n, N_META_FEATURES).

        The last column of `features` is the frequency among the rows that the base models were trained on; `frequency`
        is the same among all rows, which prediction uses.
        """
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits

        model = HistGradientBoostingClassifier(
            learning_rate=LEARNING_RATE, max_iter=N_TREES, max_depth=DEPTH, max_leaf_nodes=None,
            l2_regularization=L2_REGULARIZATION, early_stopping=False, random_state=0,
        )  # fmt: skip
        with threadpool_limits(n_threads, "openmp"):
            model.fit(features, truth)
        return cls(*complete_trees(model), frequency)

    def scores(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        votes: np.ndarray,
        margins: np.ndarray,
        cooccurrence: np.ndarray,
        device: CPU,
    ) -> np.ndarray:
        """Return log odds, float32, of the labels int32 (n, M); 0 where a label is -1."""
        out = np.empty(labels.shape, np.float32)
        device.run(tree_scores, labels, logits, votes, margins, cooccurrence, *self.arrays, device.n_threads, out)
        return out

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the arrays in the order of kernels."""
        return self.frequency, self.feature, self.threshold, self.value


NO_TREES = BoostedStacking(
    np.empty((0, INNER), np.uint8),
    np.empty((0, INNER), np.float32),
    np.empty((0, INNER + 1), np.float32),
    np.empty(0, np.float32),
)


def complete_trees(model: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return feature, threshold and value of the trees of a binary HistGradientBoostingClassifier, as complete trees.

    A leaf above the lowest level becomes nodes that always go left, with its value in the leaf below them. The first
    tree's leaves include the baseline prediction.
    """
    trees = [nodes for (predictor,) in model._predictors for nodes in [predictor.nodes]]  # type: ignore[attr-defined]
    feature = np.zeros((len(trees), INNER), np.uint8)
    threshold = np.full((len(trees), INNER), np.inf, np.float32)
    value = np.zeros((len(trees), INNER + 1), np.float32)
    for t, nodes in enumerate(trees):
        position = {0: 0}  # of each node of scikit-learn in the complete tree; parents come before their children
        for n, node in enumerate(nodes):
            at = position[n]
            if node["is_leaf"]:
                while at < INNER:
                    at = 2 * at + 1
                value[t, at - INNER] = node["value"]
            else:
                feature[t, at], threshold[t, at] = node["feature_idx"], _round_down(node["num_threshold"])
                position[int(node["left"])], position[int(node["right"])] = 2 * at + 1, 2 * at + 2
    value[0] += np.float32(model._baseline_prediction.item())  # type: ignore[attr-defined]
    return feature, threshold, value


def _round_down(threshold: float) -> np.float32:
    """Return the largest float32 not above `threshold`, so that float32 inputs compare the same with both."""
    rounded = np.float32(threshold)
    return rounded if rounded <= threshold else np.nextafter(rounded, np.float32(-np.inf))
