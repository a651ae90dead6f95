"""Kernels that select: the highest values and scores of lists, with ties, and with values that are not finite."""

from __future__ import annotations

import numpy as np
import pytest

from xmlsgd.devices.cpu.kernels.selection import keep_best, keep_highest


@pytest.mark.parametrize("n", [0, 1, 64, 65, 500])
@pytest.mark.parametrize("steps", [1, 7, 10**6])
def test_the_largest_values_are_kept_and_of_equal_ones_the_first(n, steps):
    values = (1 + np.random.default_rng(n).integers(steps, size=n + 1)).astype(np.float32) / np.float32(steps)
    items, best, found = np.arange(n + 1, dtype=np.int32), np.empty(64, np.float32), np.empty(64, np.int32)
    keep_best(values.copy(), items, n, best, found)
    expected = np.sort(values[:n])[::-1][:64]
    np.testing.assert_array_equal(np.sort(best)[::-1], np.pad(expected, (0, 64 - len(expected))))
    np.testing.assert_array_equal(values[found[found >= 0]], best[found >= 0])
    assert len(set(found[found >= 0])) == len(expected) == (found >= 0).sum()
    if n > 64:
        np.testing.assert_array_equal(found, np.sort(np.argsort(-values[:n], kind="stable")[:64]))


def test_values_below_those_that_fill_a_list_are_written_nowhere():
    values, items = np.repeat(np.float32([1, 0.5]), [64, 36]), np.arange(100, dtype=np.int32)
    best, found = np.full(65, -1, np.float32), np.full(65, -7, np.int32)
    keep_best(values, items, 100, best[:64], found[:64])
    assert best.tolist() == [1] * 64 + [-1]
    assert (sorted(found[:64]), found[64]) == (list(range(64)), -7)


def test_values_out_of_range_fill_the_list():
    values = np.array([np.nan, np.inf, 3e38, 1.5, 1, 0.5, -2, -np.inf] * 20, np.float32)
    best, found = np.empty(64, np.float32), np.empty(64, np.int32)
    keep_best(values, np.arange(160, dtype=np.int32), 160, best, found)
    assert len(set(found)) == 64
    assert set(found % 8) == {0, 1, 2, 3}


@pytest.mark.parametrize("n_scores", [0, 4])
def test_labels_with_the_highest_scores_are_kept_and_of_equal_ones_the_first(n_scores):
    rng = np.random.default_rng(1)
    labels = rng.permutation(30).astype(np.int32)
    found = (rng.integers(0, n_scores, (3, 30)) if n_scores else rng.normal(size=(3, 30))).astype(np.float32)
    labels[:3] = -1
    kept_labels, kept = np.empty(10, np.int32), np.empty((3, 10), np.float32)
    least = keep_highest(labels, found, np.empty(30, np.int32), kept_labels, kept)
    expected = 3 + np.sort(np.argsort(-found[0, 3:], kind="stable")[:10])
    np.testing.assert_array_equal(kept_labels, labels[expected])
    np.testing.assert_array_equal(kept, found[:, expected])
    assert least == found[0, expected].min()
    least = keep_highest(labels[:7], found[:, :7].copy(), np.empty(7, np.int32), kept_labels, kept)
    assert (kept_labels >= 0).sum() == 4
    assert least == -np.inf
