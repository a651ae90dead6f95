"""Rows to train on, a model that is kept to roll back to, and worker processes that start at once."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import forked_workers
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.training.kept_model import KeptModel


@pytest.fixture(scope="module")
def forked():
    """Fork the workers of runs, for tests that are not about their start; their devices are references."""
    with forked_workers.forked_workers():
        yield


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    X, Y = (CSR.from_scipy(sp.csr_array(rng.random((53, n)) * (rng.random((53, n)) < 0.3))) for n in (12, 9))
    return Dataset(X, Y)


@pytest.fixture
def kept():
    made = KeptModel()
    yield made
    made.close()
