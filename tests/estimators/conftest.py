"""Rows that the tests of the estimator learn from and are measured on, and a model of them."""

from __future__ import annotations

import pytest

from shared.planted import planted, small


@pytest.fixture(scope="module")
def rows():
    return planted(600)


@pytest.fixture(scope="module")
def held_out():
    return planted(200, seed=1)


@pytest.fixture(scope="module")
def fitted(rows):
    return small().fit(*rows)
