"""Gradient-boosted trees that correct the log odds of the logistic regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..devices.cpu import CPU
from ..devices.cpu.kernels.trees import DEPTH, INNER, tree_scores

N_META_FEATURES = 5  # inputs of a tree: network logit, share of votes, margin, co-occurrence, label frequency
N_TREES, LEARNING_RATE, L2_REGULARIZATION, MIN_LEAF = 30, 0.15, 30.0, 50
QUANTILES = np.linspace(0, 1, 255)[1:-1]  # where the bins of a feature end
MIN_CURVATURE = 1e-3  # lower bound of p (1 - p): a confident wrong pair would ask for an unbounded step


@dataclass(frozen=True, eq=False)
class BoostedStacking:
    """Trees that start from the log odds of the logistic stacking (Friedman 2001), learned on histograms.

    They model interactions of the inputs. Few held-out rows suffice: they fit what the regression leaves.

    feature uint8, threshold float32 (T, INNER), value float32 (T, INNER + 1) : see `tree_scores`. frequency : float32
    (L,), rows with each label when the trees were learned.
    """

    feature: np.ndarray
    threshold: np.ndarray
    value: np.ndarray
    frequency: np.ndarray

    @classmethod
    def fit(
        cls, features: np.ndarray, truth: np.ndarray, log_odds: np.ndarray, frequency: np.ndarray
    ) -> BoostedStacking:
        """Return trees for `truth` bool (n,) given `features` float32 (n, N_META_FEATURES) and the log odds (n,).

        The last column of `features` is the frequency among the rows that the base models were trained on; `frequency`
        is the same among all rows, which prediction uses.
        """
        from scipy.special import expit
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits

        # Bins are numbered once: scikit-learn would look for weighted quantiles again for each tree.
        edges = [np.unique(np.quantile(x, QUANTILES, method="lower")) for x in features.T]
        bins = np.stack([np.searchsorted(*each) for each in zip(edges, features.T, strict=True)], axis=1)
        scores, trees = log_odds.astype(np.float64), []
        tree = HistGradientBoostingRegressor(
            learning_rate=LEARNING_RATE, max_iter=1, max_depth=DEPTH, max_leaf_nodes=None,
            min_samples_leaf=MIN_LEAF, l2_regularization=L2_REGULARIZATION, early_stopping=False, random_state=0,
        )  # fmt: skip
        with threadpool_limits(1, "openmp"):  # with so few rows a second thread does not pay
            for _ in range(N_TREES):  # a Newton step each: scikit-learn's classifier cannot start from given log odds
                p = expit(scores)
                curvature = np.maximum(p * (1 - p), MIN_CURVATURE)
                tree.fit(bins, (truth - p) / curvature, sample_weight=curvature)
                scores += tree.predict(bins)
                trees.append(complete_tree(tree, edges))
        feature, threshold, value = (np.stack(each) for each in zip(*trees, strict=True))
        return cls(feature, threshold, value, frequency)

    def corrected(
        self,
        scores: np.ndarray,
        labels: np.ndarray,
        logits: np.ndarray,
        votes: np.ndarray,
        margins: np.ndarray,
        cooccurrence: np.ndarray,
        device: CPU,
    ) -> np.ndarray:
        """Return the log odds `scores` float32 of the labels int32, both (n, M), with what the trees add."""
        out = scores.copy()
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


def complete_tree(model: object, edges: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return feature, threshold and value of the tree of a HistGradientBoostingRegressor, as a complete tree.

    edges : float32, of the bins of each feature; values above the first j are in bin j or a later one.

    A leaf above the lowest level becomes nodes that always go left, with its value in the leaf below them. Leaves
    include the mean that the tree starts from.
    """
    ((predictor,),) = model._predictors  # type: ignore[attr-defined]
    feature, threshold = np.zeros(INNER, np.uint8), np.full(INNER, np.inf, np.float32)
    value, position = np.zeros(INNER + 1, np.float32), {0: 0}  # of each node of scikit-learn in the complete tree
    for n, node in enumerate(predictor.nodes):  # parents come before their children
        at = position[n]
        if node["is_leaf"]:
            while at < INNER:
                at = 2 * at + 1
            value[at - INNER] = node["value"]
        else:
            feature[at] = node["feature_idx"]
            threshold[at] = edges[node["feature_idx"]][int(node["num_threshold"])]  # between bin j and j + 1
            position[int(node["left"])], position[int(node["right"])] = 2 * at + 1, 2 * at + 2
    value += np.float32(model._baseline_prediction.item())  # type: ignore[attr-defined]
    return feature, threshold, value
