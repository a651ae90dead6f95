"""What runs that are cut short train on, and where they leave it."""

from __future__ import annotations

import pytest

from shared import toy
from shared.cut_runs import N_ROWS
from xmlsgd.training.checkpoints import Checkpoint


@pytest.fixture(scope="module")
def dataset():
    """Rows of a run."""
    return toy.random_data(N_ROWS, 12, 9)


@pytest.fixture
def at(tmp_path):
    """A checkpoint that is written after every step."""
    return Checkpoint(tmp_path / "kept", minutes=0)
