"""Rows that the tests of the estimator learn from and are measured on, and a model of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.planted import planted, small


@pytest.fixture(scope="module", autouse=True)
def few_folds() -> Iterator[None]:
    """Hold small data out in one fold: as good as six for most tests, in three quarters of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xmlsgd.estimators.held_out.FOLDED_ROWS", 1)
        yield


@pytest.fixture(scope="module")
def rows():
    return planted(600)


@pytest.fixture(scope="module")
def held_out():
    return planted(200, seed=1)


@pytest.fixture(scope="module")
def fitted(rows):
    return small().fit(*rows)
