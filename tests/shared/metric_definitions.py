"""Measures in plain loops, written from their definitions, and cases to compare them on."""

import math

import numpy as np
import scipy.sparse as sp

from xmlsgd.data.csr import CSR


def naive_precision(true, ranking, k):
    return sum(sum(label in labels for label in row[:k]) / k for labels, row in zip(true, ranking, strict=True)) / len(
        true
    )


def naive_recall(true, ranking, k):
    hits = [sum(label in labels for label in row[:k]) for labels, row in zip(true, ranking, strict=True)]
    return sum(hit / max(len(labels), 1) for hit, labels in zip(hits, true, strict=True)) / len(true)


def naive_ndcg(true, ranking, k, q=None):
    total = 0.0
    for labels, row in zip(true, ranking, strict=True):
        gain = sum((1 if q is None else q[x]) / math.log2(j + 2) for j, x in enumerate(row[:k]) if x in labels)
        ideal = sum(1 / math.log2(j + 2) for j in range(min(k, len(labels))))
        total += gain / ideal if labels else 0.0
    return total / len(true)


def naive_propensity(true, n_labels, A=0.55, B=1.5):
    counts = [sum(label in labels for labels in true) for label in range(n_labels)]
    C = (math.log(len(true)) - 1) * (B + 1) ** A
    return [1 + C * (count + B) ** -A for count in counts]


def naive_best(true, q):
    return [sorted(labels, key=lambda label: -q[label]) for labels in true]


def naive_psprecision(true, ranking, k, q):
    return sum(sum(q[x] for x in row[:k] if x in labels) / k for labels, row in zip(true, ranking, strict=True)) / len(
        true
    )


def naive_psrecall(true, ranking, k, q):
    gains = [sum(q[x] for x in row[:k] if x in labels) for labels, row in zip(true, ranking, strict=True)]
    return sum(gain / max(len(labels), 1) for gain, labels in zip(gains, true, strict=True)) / len(true)


def naive_counts(true, ranking, k, n_labels):
    predicted = [{label for label in row[:k] if label >= 0} for row in ranking]
    for label in range(n_labels):
        pairs = [(label in labels, label in found) for labels, found in zip(true, predicted, strict=True)]
        yield pairs.count((True, True)), pairs.count((False, True)), pairs.count((True, False))


def naive_macro_f1(true, ranking, k, n_labels):
    values = [
        2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0 for tp, fp, fn in naive_counts(true, ranking, k, n_labels)
    ]
    return sum(values) / len(values)


def naive_micro_f1(true, ranking, k, n_labels):
    tp, fp, fn = (sum(column) for column in zip(*naive_counts(true, ranking, k, n_labels), strict=True))
    return 2 * tp / (2 * tp + fp + fn)


def naive_coverage(true, ranking, k):
    found = {label for labels, row in zip(true, ranking, strict=True) for label in row[:k] if label in labels}
    return len(found) / len(set().union(*true))


class Case:
    """Random true labels with rows empty and rows of fewer than k labels, and a ranking with padding."""

    def __init__(self, seed, n_rows=60, n_labels=25, width=7, padding=0.15):
        rng = np.random.default_rng(seed)
        Y = rng.random((n_rows, n_labels)) < rng.random(n_rows)[:, None] * 0.4
        Y[:: n_rows // 6] = False
        Y[:, 3] = False  # a label that no row has
        self.Y = CSR.from_scipy(sp.csr_array(Y.astype(np.float32)))
        self.dense = Y
        self.true = [set(np.flatnonzero(row).tolist()) for row in Y]
        self.n_labels = n_labels
        # True labels come more often than by chance, so that every term of a formula counts.
        scores = rng.random((n_rows, n_labels)) + Y * rng.random((n_rows, 1))
        self.scores = scores
        self.ranking = np.argsort(-scores, axis=1)[:, :width]
        self.padded = np.where(rng.random(self.ranking.shape) < padding, -1, self.ranking)
        self.lists = self.padded.tolist()
        self.q = naive_propensity(self.true, n_labels)
