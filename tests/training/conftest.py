"""Worker processes that start at once."""

from __future__ import annotations

import pytest

from benchmarks import forked_workers


@pytest.fixture(scope="module")
def forked():
    """Fork the workers of runs, for tests that are not about their start; their devices are references."""
    with forked_workers.forked_workers():
        yield
