"""Gradient-boosted trees that correct the log odds of the logistic regression."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..devices.cpu import CPU
from ..devices.cpu.kernels.trees import DEPTH, INNER, tree_scores

N_META_FEATURES = 5  # inputs of the trees: network logit, share of votes, margin, co-occurrence, label frequency
N_TREES, LEARNING_RATE, L2_REGULARIZATION, MIN_LEAF = 15, 0.3, 30.0, 50


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
    def fit(
        cls, features: np.ndarray, truth: np.ndarray, log_odds: np.ndarray, frequency: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> BoostedTrees:  # fmt: skip
        """Fit trees to `truth`, bool (n,), given `features`, float32 (n, N_META_FEATURES), and log odds (n,).

        The last column of `features` is the label frequency among the rows that the base models were trained on;
        `frequency` is that among all rows, which prediction uses. weights : weights of the pairs, (n,); None for ones.
        """
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits

        model = HistGradientBoostingRegressor(
            loss=_log_loss_from(log_odds, weights), learning_rate=LEARNING_RATE, max_iter=N_TREES, max_depth=DEPTH,
            max_leaf_nodes=None, min_samples_leaf=MIN_LEAF, l2_regularization=L2_REGULARIZATION,
            early_stopping=False, random_state=0,
        )  # fmt: skip
        with threadpool_limits(1, "openmp"):  # with so few rows, a second thread does not pay off
            model.fit(features, truth)
        feature, threshold, value = complete_trees(model)
        return cls(feature, threshold, value, frequency)

    def corrected(
        self, scores: np.ndarray, labels: np.ndarray, inputs: Iterable[np.ndarray], device: CPU
    ) -> np.ndarray:
        """Return the log odds `scores` of the labels plus the values of the trees; arrays are (n, M).

        inputs : `stacking.Inputs`.
        """
        out = scores.copy()
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


def _log_loss_from(log_odds: np.ndarray, weights: np.ndarray | None) -> Any:
    """Return the log loss of `log_odds` plus scores, for scikit-learn, whose boosting has no such offset.

    weights : weights of the pairs; given to scikit-learn, they would make its bins weighted quantiles, in seven times
    the time of everything else.
    """
    from sklearn._loss.loss import HalfBinomialLoss

    class LogLoss(HalfBinomialLoss):  # type: ignore[misc]
        def fit_intercept_only(self, y_true: np.ndarray, sample_weight: Any = None) -> np.ndarray:
            return np.zeros(1)

        def gradient_hessian(self, y_true: np.ndarray, raw_prediction: np.ndarray, **options: Any) -> Any:
            scores = raw_prediction + log_odds.reshape(raw_prediction.shape).astype(raw_prediction.dtype)
            return super().gradient_hessian(y_true, scores, **options | {"sample_weight": weights})

    return LogLoss()


def complete_trees(model: Any) -> tuple[np.ndarray, ...]:
    """Return feature, threshold and value arrays of the trees of a `HistGradientBoostingRegressor`."""
    trees = [_complete_tree(predictor.nodes) for (predictor,) in model._predictors]
    return tuple(np.stack(each) for each in zip(*trees, strict=True))


def _complete_tree(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return feature, threshold and value arrays of one tree of scikit-learn, as a complete binary tree.

    A leaf above the lowest level becomes nodes that always go left, and its value that of the leaf below them.
    """
    feature, threshold = np.zeros(INNER, np.uint8), np.full(INNER, np.inf, np.float32)
    value = np.zeros(INNER + 1, np.float32)
    position = {0: 0}  # node of scikit-learn -> its number in the complete tree
    for n, node in enumerate(nodes):  # parents come before their children
        at = position[n]
        if node["is_leaf"]:
            while at < INNER:
                at = 2 * at + 1
            value[at - INNER] = node["value"]
        else:
            feature[at] = node["feature_idx"]
            threshold[at] = _rounded_down(node["num_threshold"])  # separates the same float32 values
            position[int(node["left"])], position[int(node["right"])] = 2 * at + 1, 2 * at + 2
    return feature, threshold, value


def _rounded_down(number: float) -> np.float32:
    """Return the largest float32 that is not above `number`."""
    found = np.float32(number)
    return found if found <= number else np.nextafter(found, np.float32(-np.inf))
