"""A job of twelve rows, and every executor as a parameter."""

from __future__ import annotations

import pytest

from shared import toy
from shared.every_executor import KINDS, N_ROWS, NETWORK
from xmlsgd.nn.optimizers import SGD
from xmlsgd.training.job import Job


@pytest.fixture
def job():
    return Job(toy.random_data(N_ROWS, 6, 5, density=0.5), NETWORK, SGD(), seed=3)


@pytest.fixture(params=KINDS)
def executor(request):
    made = KINDS[request.param]()
    yield made
    made.close()
