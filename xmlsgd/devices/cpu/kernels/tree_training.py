"""The kernel that grows gradient-boosted trees: Newton steps on the log loss, from given log odds (Friedman 2001).

Values of an input are sorted into bins, and a split is between two bins, as in LightGBM (Ke et al. 2017). Trees are
complete, as the kernel of `trees` needs them: below a node that is not split, all examples go left.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ..compiling import kernel_of_part
from .trees import DEPTH, INNER

BINS = 64  # of each input


@njit(nogil=True)
def bin_of(value, edges):
    """Return how many of the ascending edges are below a value."""
    low, high = 0, edges.size
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True)
def best_split(sums, l2):
    """Return the input and the bin after which a split lowers the loss most; -1 if no split does.

    sums float64 (inputs, BINS, 2) : sums of the first and second derivatives of the losses of a node's examples.
    """
    total, squares = sums[0, :, 0].sum(), sums[0, :, 1].sum()
    most, found, at = total * total / (squares + l2), -1, 0
    for f in range(sums.shape[0]):
        left, left_squares = 0.0, 0.0
        for b in range(sums.shape[1] - 1):
            left += sums[f, b, 0]
            left_squares += sums[f, b, 1]
            right = total - left
            gain = left * left / (left_squares + l2) + right * right / (squares - left_squares + l2)
            if gain > most:
                most, found, at = gain, f, b
    return found, at


@kernel_of_part()
def grow(part, n_parts, spans, inputs, truth, log_odds, weights, edges, rate, l2, feature, threshold, value):
    """Grow trees that correct `log_odds`, once for each of the spans of examples; a part has every n_parts-th.

    spans int64 (s, 2) : first and last + 1 of the examples to learn. inputs float32 (n, inputs), truth bool, log_odds
    float32, weights float64 (n,) : the examples. edges float32 (inputs, BINS - 1) : the upper edges of bins but the
    last, ascending. rate : learning rate. l2 : L2 regularization. The trees are written to feature uint8 (s, T, INNER),
    threshold float32 (s, T, INNER) and value float32 (s, T, INNER + 1).
    """
    n_inputs = inputs.shape[1]
    sums = np.empty((1 << (DEPTH - 1), n_inputs, BINS, 2))
    for s in range(part, len(spans), n_parts):
        first, n = spans[s, 0], spans[s, 1] - spans[s, 0]
        bins, odds = np.empty((n, n_inputs), np.uint8), log_odds[first : first + n].astype(np.float64)
        leaf, slope, curve = np.empty(n, np.uint8), np.empty(n), np.empty(n)
        for i in range(n):
            for f in range(n_inputs):
                bins[i, f] = bin_of(inputs[first + i, f], edges[f])
        for t in range(feature.shape[1]):
            for i in range(n):
                chance = 1 / (1 + math.exp(-odds[i]))
                slope[i] = weights[first + i] * (chance - truth[first + i])
                curve[i] = weights[first + i] * chance * (1 - chance)
                leaf[i] = 0
            for level in range(DEPTH):
                width = 1 << level
                sums[:width] = 0
                for i in range(n):
                    of_node = sums[leaf[i]]
                    for f in range(n_inputs):
                        of_node[f, bins[i, f], 0] += slope[i]
                        of_node[f, bins[i, f], 1] += curve[i]
                asked, last = np.zeros(width, np.uint8), np.full(width, BINS, np.uint8)
                for j in range(width):
                    f, at = best_split(sums[j], l2)
                    node = width - 1 + j
                    feature[s, t, node], threshold[s, t, node] = max(f, 0), np.inf
                    if f >= 0:
                        asked[j], last[j], threshold[s, t, node] = f, at, edges[f, at]
                for i in range(n):
                    j = leaf[i]
                    leaf[i] = 2 * j + np.uint8(bins[i, asked[j]] > last[j])
            of_leaves = np.zeros((INNER + 1, 2))
            for i in range(n):
                of_leaves[leaf[i], 0] += slope[i]
                of_leaves[leaf[i], 1] += curve[i]
            for j in range(INNER + 1):
                value[s, t, j] = -rate * of_leaves[j, 0] / (of_leaves[j, 1] + l2)
            for i in range(n):
                odds[i] += value[s, t, leaf[i]]
