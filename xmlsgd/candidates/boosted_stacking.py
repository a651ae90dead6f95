"""A blend of gradient-boosted trees: what the paths say of a label and how frequent it is, stacked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..devices.cpu import CPU
from ..devices.cpu.kernels.trees import DEPTH, INNER, tree_scores

EVIDENCE = 4  # what a tree may ask: the network's logit, votes, margin, frequency
# 30 trees at a rate of 0.2 lose 0.05 at P@1, 150 at 0.07 gain nothing (docs/decisions/shortlist.md).
TREES, RATE, DECAY = 50, 0.15, 10.0


@dataclass(frozen=True, eq=False)
class Boosted:
    """Trees for the log odds that a label is right (Friedman 2001), learned on histograms, as in LightGBM.

    feature uint8, threshold float32 (T, INNER), value float32 (T, INNER + 1) : see `tree_scores`. frequency : float32
    (L,), rows with each label when the trees were learned.
    """

    feature: np.ndarray
    threshold: np.ndarray
    value: np.ndarray
    frequency: np.ndarray

    @classmethod
    def fit(cls, evidence: np.ndarray, truth: np.ndarray, frequency: np.ndarray, n_threads: int) -> Boosted:
        """Return trees that explain `truth` bool (n,) best by `evidence` float32 (n, EVIDENCE).

        The last column of `evidence` is to the rows that the paths have learned from what `frequency` is to all rows.
        """
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits

        model = HistGradientBoostingClassifier(
            learning_rate=RATE, max_iter=TREES, max_depth=DEPTH, max_leaf_nodes=None, l2_regularization=DECAY,
            early_stopping=False, random_state=0,
        )  # fmt: skip
        with threadpool_limits(n_threads, "openmp"):
            model.fit(evidence, truth)
        return cls(*complete_trees(model), frequency)

    def scores(
        self, labels: np.ndarray, logits: np.ndarray, votes: np.ndarray, margins: np.ndarray, device: CPU
    ) -> np.ndarray:
        """Return log odds, float32, of the labels int32 (n, M); 0 where a label is -1."""
        out = np.empty(labels.shape, np.float32)
        device.run(tree_scores, labels, logits, votes, margins, *self.arrays, device.n_threads, out)
        return out

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the arrays in the order of kernels."""
        return self.frequency, self.feature, self.threshold, self.value

    def grown(self, n_labels: int) -> Boosted:
        """Return the same trees for more labels, which had no rows when they were learned."""
        fresh = np.zeros(n_labels - len(self.frequency), np.float32)
        return replace(self, frequency=np.concatenate([self.frequency, fresh]))


NO_TREES = Boosted(
    np.empty((0, INNER), np.uint8),
    np.empty((0, INNER), np.float32),
    np.empty((0, INNER + 1), np.float32),
    np.empty(0, np.float32),
)


def complete_trees(model: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return feature, threshold and value of the trees of scikit-learn's HistGradientBoostingClassifier, two classes.

    A leaf above the lowest level becomes nodes that always lead to the left, with its value below them. The sum that
    boosting starts with is in the leaves of the first tree.
    """
    trees = [nodes for (predictor,) in model._predictors for nodes in [predictor.nodes]]  # type: ignore[attr-defined]
    feature = np.zeros((len(trees), INNER), np.uint8)
    threshold = np.full((len(trees), INNER), np.inf, np.float32)
    value = np.zeros((len(trees), INNER + 1), np.float32)
    for t, nodes in enumerate(trees):
        at = {0: 0}  # of each of scikit-learn's nodes, its place
        for n, node in enumerate(nodes):  # parents come before their children
            place = at[n]
            if node["is_leaf"]:
                while place < INNER:
                    place = 2 * place + 1
                value[t, place - INNER] = node["value"]
            else:
                feature[t, place], threshold[t, place] = node["feature_idx"], _at_most(node["num_threshold"])
                at[int(node["left"])], at[int(node["right"])] = 2 * place + 1, 2 * place + 2
    value[0] += np.float32(model._baseline_prediction.item())  # type: ignore[attr-defined]
    return feature, threshold, value


def _at_most(threshold: float) -> np.float32:
    """Return the largest float32 that is not above a threshold: float32 numbers are above both or above none."""
    rounded = np.float32(threshold)
    return rounded if rounded <= threshold else np.nextafter(rounded, np.float32(-np.inf))
