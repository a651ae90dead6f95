"""A reader of bytes."""

from __future__ import annotations

import pytest

from xmlsgd.csr import Dataset
from xmlsgd.datasets.libsvm import read_libsvm


@pytest.fixture
def read(tmp_path):
    """Return a function that reads bytes as a file."""

    def read_bytes(data: bytes, **options) -> Dataset:
        path = tmp_path / "data.txt"
        path.write_bytes(data)
        return read_libsvm(path, **options)

    return read_bytes
