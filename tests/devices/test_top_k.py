"""The best labels on every device: those of a full sort, ties to the smaller label, whatever rows are around."""

from __future__ import annotations

import numpy as np
import pytest

from shared.layers import output_batch, random_layer
from xmlsgd.devices.base import Layer
from xmlsgd.devices.cpu import CPU, search
from xmlsgd.devices.cpu.search import PREDICT_BATCH
from xmlsgd.devices.reference import Reference

pytestmark = pytest.mark.processor


@pytest.mark.parametrize(
    ("n", "H", "L", "k"),
    [(1, 24, 1, 1), (7, 32, 5, 5), (33, 40, 100, 3), (PREDICT_BATCH + 9, 24, 700, 5), (40, 64, 300, 40)],
)
def test_top_k_is_a_full_sort(device, n, H, L, k):
    A, _, layer = output_batch((n, H, L))
    labels, scores = device.top_k(A, layer, k)
    expected_labels, expected_scores = Reference().top_k(A, layer, k)
    assert labels.dtype == np.int32
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
    # Two labels may change places where their logits differ by less than float32 sums do.
    Z = A.astype(np.float64) @ layer.W.T + layer.b
    np.testing.assert_allclose(np.take_along_axis(Z, labels, axis=1), expected_scores, rtol=1e-5, atol=1e-5)
    assert np.mean(labels == expected_labels) > 0.99
    assert all(len(set(row)) == k for row in labels)


@pytest.mark.parametrize(("n", "n_sorted"), [(3, 2000), (12, 2000), (3, 100)])
def test_a_long_list_is_a_full_sort_of_all_labels(monkeypatch, n, n_sorted):
    monkeypatch.setattr(search, "LONG", 50)
    monkeypatch.setattr(search, "SORTED", n_sorted)
    A, _, layer = output_batch((n, 32, 300))
    layer.W[100:200] = layer.W[:100]  # ties
    layer.b[100:200] = layer.b[:100]
    device = CPU(1)
    for k in (51, 300, 310):
        labels, scores = device.top_k(A, layer, k)
        expected_labels, expected_scores = Reference().top_k(A, layer, k)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
        assert np.mean(labels == expected_labels) > 0.99


@pytest.mark.parametrize("k", [1, 5, 40])
def test_ties_go_to_the_smaller_label(device, k):
    n, H, L = 35, 32, 600
    rng = np.random.default_rng(k)
    A = rng.integers(0, 2, (n, H)).astype(np.float32)
    layer = random_layer(rng, (L, H), L)
    layer.W[:] = 0
    layer.W[:, :3] = rng.integers(-1, 2, (L, 3))
    layer.b[:] = rng.integers(0, 2, L)
    labels, scores = device.top_k(A, layer, k)
    expected_labels, expected_scores = Reference().top_k(A, layer, k)
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(labels, expected_labels)


def test_places_beyond_the_last_label_hold_minus_one_and_minus_infinity(device):
    A, _, layer = output_batch((33, 40, 6))
    labels, scores = device.top_k(A, layer, 9)
    np.testing.assert_array_equal(labels[:, 6:], -1)
    np.testing.assert_array_equal(scores[:, 6:], -np.inf)
    np.testing.assert_array_equal(np.sort(labels[:, :6], axis=1), np.tile(np.arange(6), (33, 1)))
    assert np.all(np.diff(scores[:, :6], axis=1) <= 0)


@pytest.mark.parametrize("n", [3, 300])
def test_labels_above_the_floor_of_their_row_are_found(device, n):
    A, _, layer = output_batch((n, 40, 700))
    expected_labels, expected_scores = Reference().top_k(A, layer, 700)
    places = np.arange(n) % 60
    floor = expected_scores[np.arange(n), places]
    floor[0], floor[-1], places[0], places[-1] = np.inf, -np.inf, 0, 50
    labels, scores = device.top_k(A, layer, 50, floor)
    for i, place in enumerate(np.minimum(places, 50)):
        np.testing.assert_allclose(scores[i, :place], expected_scores[i, :place], rtol=1e-5, atol=1e-5)
        assert (labels[i, :place] != expected_labels[i, :place]).sum() <= place / 10
        left_out = labels[i] < 0
        assert np.isneginf(scores[i, left_out]).all()
        assert (np.diff(left_out.astype(int)) >= 0).all()  # at the end
    if isinstance(device, CPU):
        assert (labels[0] < 0).all()


def test_scores_do_not_depend_on_the_rows_around(device):
    A, _, layer = output_batch((70, 40, 300))
    labels, scores = device.top_k(A, layer, 5)
    alone = [device.top_k(A[i : i + 1], layer, 5) for i in (0, 31, 69)]
    for i, (label, score) in zip((0, 31, 69), alone, strict=True):
        np.testing.assert_array_equal(label[0], labels[i])
        np.testing.assert_allclose(score[0], scores[i], rtol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_the_best_labels_of_a_few_rows_are_those_that_they_have_among_many(precision):
    rng = np.random.default_rng(0)
    A, W, b = (rng.normal(size=size).astype(np.float32) for size in ((300, 48), (700, 48), 700))
    layer, device = Layer(W, b, *np.zeros((4, 1, 1), np.float32)), CPU(1, precision)
    with device.start():
        labels, scores = device.top_k(A, layer, 4)
        for n in (1, 2, 31, 33, 257):
            found, found_scores = device.top_k(A[:n], layer, 4)
            np.testing.assert_array_equal(found, labels[:n])
            np.testing.assert_allclose(found_scores, scores[:n], rtol=1e-5, atol=1e-5)


def test_a_label_whose_score_is_no_number_is_none_of_the_best(device):
    A, _, layer = output_batch((35, 32, 300))
    layer.b[7] = np.nan
    labels, _ = device.top_k(A, layer, 5)
    expected, _ = Reference().top_k(A, layer, 5)
    assert not (labels == 7).any()
    assert np.mean(labels == expected) > 0.99
