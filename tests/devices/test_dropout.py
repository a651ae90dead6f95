"""Masks of dropout: those of the reference bit for bit, of the share that is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from xmlsgd.devices.base import Dropout
from xmlsgd.devices.reference import Reference, kept


@pytest.mark.parametrize("dropout", [Dropout(0.5, 0), Dropout(0.1, 123456789), Dropout(0.99, 2**32 - 1)], ids=str)
def test_masks_are_those_of_the_reference_bit_for_bit(device, dropout):
    A = np.random.default_rng(0).uniform(0.5, 1, (57, 33)).astype(np.float32)
    expected, got = A.copy(), A.copy()
    Reference().drop(expected, dropout)
    device.drop(got, dropout)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got > 0, kept(dropout, np.arange(A.size)).reshape(A.shape))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_is_the_one_asked_for(share):
    mask = kept(Dropout(share, 5), np.arange(100_000))
    assert 1 - mask.mean() == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / 100_000))


def test_masks_of_two_seeds_are_independent():
    a, b = (kept(Dropout(0.5, seed), np.arange(100_000)) for seed in (1, 2))
    assert np.mean(a == b) == pytest.approx(0.5, abs=0.01)


def test_dropout_keeps_the_expected_activation(device):
    A = np.ones((500, 64), np.float32)
    device.drop(A, Dropout(0.25, 3))
    assert set(np.unique(A)) == {np.float32(0), np.float32(1 / 0.75)}
    assert A.mean() == pytest.approx(1, abs=0.02)
