"""A reader of bytes, and a server of files."""

from __future__ import annotations

import threading

import pytest

from shared.file_server import Server
from xmlsgd.data.csr import Dataset
from xmlsgd.data.formats.libsvm import read_libsvm


@pytest.fixture
def read(tmp_path):
    """Return a function that reads bytes as a file."""

    def read_bytes(data: bytes, **options) -> Dataset:
        path = tmp_path / "data.txt"
        path.write_bytes(data)
        return read_libsvm(path, **options)

    return read_bytes


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
