"""The kernel that grows gradient-boosted trees: Newton steps on the log loss, from given log odds (Friedman 2001).

Values of an input are sorted into bins, and a split is between two bins, as in LightGBM (Ke et al. 2017). Trees are
complete, as the kernel of `trees` needs them: below a node that is not split, all pairs go left.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ..compiling import kernel_of_part
from .trees import DEPTH, INNER

BINS = 64  # of each input


@njit(nogil=True)
def best_split(sums, l2):
    """Return the input and the last bin on the left of the split that lowers the loss most; (-1, 0) if none does.

    sums float64 (inputs, BINS, 2) : sums of the gradients and of the Hessians of a node's pairs.
    """
    gradient, hessian = sums[0, :, 0].sum(), sums[0, :, 1].sum()
    best_gain, best_input, best_bin = gradient * gradient / (hessian + l2), -1, 0
    for f in range(sums.shape[0]):
        left, left_hessian = 0.0, 0.0
        for b in range(sums.shape[1] - 1):
            left += sums[f, b, 0]
            left_hessian += sums[f, b, 1]
            right = gradient - left
            gain = left * left / (left_hessian + l2) + right * right / (hessian - left_hessian + l2)
            if gain > best_gain:
                best_gain, best_input, best_bin = gain, f, b
    return best_input, best_bin


@kernel_of_part()
def grow(
    part, n_parts, spans, inputs, truth, log_odds, weights, edges, rate, l2, tree_feature, tree_threshold, tree_value
):
    """Grow the trees of each span of pairs, which correct `log_odds`; a part takes every n_parts-th span.

    spans int64 (s, 2) : the first pair of each and the last + 1. inputs float32 (n, inputs), truth bool, log_odds
    float32, weights float64 (n,) : the pairs of a row and a label. edges float32 (inputs, BINS - 1) : the upper edges
    of all bins but the last, ascending. rate : learning rate. l2 : L2 regularization. The trees are written to
    tree_feature uint8 (s, T, INNER), tree_threshold float32 (s, T, INNER) and tree_value float32 (s, T, INNER + 1).
    """
    n_inputs = inputs.shape[1]
    sums = np.empty((1 << (DEPTH - 1), n_inputs, BINS, 2))
    for s in range(part, len(spans), n_parts):
        first, n = spans[s, 0], spans[s, 1] - spans[s, 0]
        bins, score = np.empty((n, n_inputs), np.uint8), log_odds[first : first + n].astype(np.float64)
        node, gradient, hessian = np.empty(n, np.uint8), np.empty(n), np.empty(n)
        for i in range(n):
            for f in range(n_inputs):
                bins[i, f] = np.searchsorted(edges[f], inputs[first + i, f])
        for t in range(tree_feature.shape[1]):
            # Gradient and Hessian of the log loss; all pairs are in the root.
            for i in range(n):
                p = 1 / (1 + math.exp(-score[i]))
                gradient[i] = weights[first + i] * (p - truth[first + i])
                hessian[i] = weights[first + i] * p * (1 - p)
                node[i] = 0
            for level in range(DEPTH):
                width = 1 << level
                # Histograms of the nodes of this level.
                sums[:width] = 0
                for i in range(n):
                    of_node = sums[node[i]]
                    for f in range(n_inputs):
                        of_node[f, bins[i, f], 0] += gradient[i]
                        of_node[f, bins[i, f], 1] += hessian[i]
                # Split each node where the loss falls most; else all its pairs go left.
                split_input, split_bin = np.zeros(width, np.uint8), np.full(width, BINS, np.uint8)
                for j in range(width):
                    f, b = best_split(sums[j], l2)
                    at = width - 1 + j
                    tree_feature[s, t, at], tree_threshold[s, t, at] = max(f, 0), np.inf
                    if f >= 0:
                        split_input[j], split_bin[j], tree_threshold[s, t, at] = f, b, edges[f, b]
                # Move the pairs to the children.
                for i in range(n):
                    j = node[i]
                    node[i] = 2 * j + np.uint8(bins[i, split_input[j]] > split_bin[j])
            # A Newton step in each leaf, which is added to the scores.
            of_leaves = np.zeros((INNER + 1, 2))
            for i in range(n):
                of_leaves[node[i], 0] += gradient[i]
                of_leaves[node[i], 1] += hessian[i]
            for j in range(INNER + 1):
                tree_value[s, t, j] = -rate * of_leaves[j, 0] / (of_leaves[j, 1] + l2)
            for i in range(n):
                score[i] += tree_value[s, t, node[i]]
