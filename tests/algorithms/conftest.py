"""Rows that the tests of Omnivore train."""

from __future__ import annotations

import pytest

from shared import toy
from shared.omnivore_runs import N_ROWS


@pytest.fixture(scope="module")
def dataset():
    return toy.random_data(N_ROWS, 14, 9, density=0.3)
