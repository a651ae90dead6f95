"""Rows that models learn, and a model of them on disk."""

from __future__ import annotations

import pytest

from shared.saved_models import small, some_rows


@pytest.fixture(scope="module")
def rows():
    return some_rows()


@pytest.fixture
def saved(rows, tmp_path):
    """Return the folder of a saved model."""
    small().fit(*rows).save(tmp_path / "model")
    return tmp_path / "model"
