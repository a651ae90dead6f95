"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shared.paths import SHARED_DATA

# Threads of a BLAS wait in loops; beside another test process, that took half of the time of the tests of devices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return a function from the name of a real data set to its folder; it skips the test where there is none."""

    def folder(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.is_dir():
            pytest.skip(f"the data set {name} is not beside the checkout")
        return path

    return folder


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Let nobody wait for the disk: no test is about what a machine keeps that loses its power."""
    fsync = os.fsync
    os.fsync = lambda fd: None
    yield
    os.fsync = fsync


@pytest.fixture(scope="module", autouse=True)
def few_folds() -> Iterator[None]:
    """Hold small data out in one fold: as good as ten for most tests, in a sixth of the time of a `fit`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xmlsgd.estimators.held_out.FOLDED_ROWS", 1)
        yield
