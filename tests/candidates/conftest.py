"""Rows for the parts of a candidate model, and a model trained on rows with many labels."""

from __future__ import annotations

import numpy as np
import pytest

from shared.candidates import DEVICE, SETTINGS
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates.weighting import idf_weights, unit_rows
from xmlsgd.data.csr import CSR, Dataset


@pytest.fixture(scope="module")
def data() -> Dataset:
    return make_xmc(600, 300, 80, nnz_per_row=8, labels_per_row=3, random_state=0)


@pytest.fixture(scope="module")
def rows(data) -> CSR:
    return unit_rows(data.X, idf_weights(data.X), DEVICE)


@pytest.fixture(scope="module")
def many() -> tuple[Dataset, Dataset]:
    whole = make_xmc(9000, 1500, 1100, nnz_per_row=10, labels_per_row=3, random_state=0)
    train, test = (Dataset(whole.X.take(part), whole.Y.take(part)) for part in (np.arange(8000), np.arange(8000, 9000)))
    return train, test


@pytest.fixture(scope="module")
def model(many) -> XMLClassifier:
    return XMLClassifier(**SETTINGS).fit(many[0].X, many[0].Y)
