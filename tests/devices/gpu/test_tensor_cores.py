"""Softmax on tensor cores: sums of integers are exact, exponentials are right whatever the order of blocks."""

from __future__ import annotations

import pytest

from shared.tensor_cores import compare_exactly, compare_exponentials
from xmlsgd.devices.cuda.tensor_cores import BAND


@pytest.mark.parametrize(("B", "H"), [(1, 1), (16, 133), (90, 24), (16, 134)])
def test_weights_and_sums_of_small_integers_are_exact(make, B, H):
    compare_exactly(make, B, H)


@pytest.mark.parametrize(("B", "band"), [(5, BAND), (150, 2)])
def test_exponentials_of_integers_are_those_of_the_logits_whatever_the_order_of_blocks(make, B, band):
    compare_exponentials(make, B, band)
