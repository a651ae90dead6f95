"""A served model, and a client of its server."""

from __future__ import annotations

import pytest

from shared.served import LABELS, TEXTS, TOKEN
from xmlsgd import XMLClassifier


@pytest.fixture(scope="session")
def model():
    return XMLClassifier((8,), max_epochs=20, random_state=0, n_jobs=1).fit(TEXTS, LABELS)


@pytest.fixture
def served(model):
    from xmlsgd.serving.service import ServedModel, Service

    return Service(ServedModel(model), "words", TOKEN)


@pytest.fixture
def client(served):
    from starlette.testclient import TestClient

    from xmlsgd.serving.app import new_app

    with TestClient(new_app(served), raise_server_exceptions=False) as client:
        yield client
