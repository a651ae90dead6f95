"""The kernel of gradient-boosted trees: add the sum of all trees to the scores.

Trees are complete, so that a walk needs neither pointers nor branches: node j leads to 2 j + 1 or 2 j + 2. All labels
of a row go through a tree level by level, so that their memory accesses overlap.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..compiling import kernel_of_part

DEPTH = 4  # of every tree (docs/decisions/stacking.md)
INNER = 2**DEPTH - 1  # nodes that compare; a tree has one leaf more
# Unsigned, as Numba would test at each access whether a signed index counts from the end.
_NONE, _ONE, _TWO, _INNER = np.uint32(0), np.uint32(1), np.uint32(2), np.uint32(INNER)


@njit(nogil=True)
def trees_of_row(
    labels, logits, votes, margins, cooccurrences, label_frequency, tree_feature, tree_threshold, tree_value, known,
    node, total, out,
):  # fmt: skip
    """Add the sum of all trees for each of the labels int32 (M,) to `out` float32 (M,).

    The inputs of a label are, in this order, its `logits`, `votes`, `margins` and `cooccurrences` (M,), and
    `label_frequency` (L,). A walk goes right at node j of tree t if input number tree_feature[t, j] is above
    tree_threshold[t, j], uint8 and float32 (T, INNER). tree_value float32 (T, INNER + 1) : the leaves. known float32
    (5, M), node uint32 (M,), total float64 (M,) : scratch.
    """
    total[:] = 0
    for m in range(labels.size):
        known[0, m], known[1, m], known[2, m] = logits[m], votes[m], margins[m]
        known[3, m], known[4, m] = cooccurrences[m], label_frequency[max(labels[m], 0)]
    for t in range(tree_feature.shape[0]):
        asked, limit, leaf = tree_feature[t], tree_threshold[t], tree_value[t]
        node[:] = _NONE
        for _ in range(DEPTH):
            for m in range(node.size):
                j = node[m]
                node[m] = _TWO * j + _ONE + np.uint32(known[asked[j], m] > limit[j])
        for m in range(node.size):
            total[m] += leaf[node[m] - _INNER]
    for m in range(labels.size):
        out[m] += total[m]


@kernel_of_part()
def tree_scores(
    part, n_parts, labels, logits, votes, margins, cooccurrences, label_frequency, tree_feature, tree_threshold,
    tree_value, out,
):  # fmt: skip
    """Add the sums of `trees_of_row` for labels int32 (rows, M) to `out` float32 (rows, M)."""
    n_rows, M = labels.shape
    known, node, total = np.empty((5, M), np.float32), np.empty(M, np.uint32), np.empty(M)
    for i in range(part, n_rows, n_parts):
        trees_of_row(
            labels[i], logits[i], votes[i], margins[i], cooccurrences[i], label_frequency, tree_feature, tree_threshold,
            tree_value, known, node, total, out[i],
        )  # fmt: skip
