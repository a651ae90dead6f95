"""Fixtures that more than one test file uses."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shared.paths import SHARED_DATA

# Threads of a BLAS wait in loops; beside another test process, that took half of the time of the tests of devices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return a function from the name of a real data set to its folder; it skips the test where there is none."""

    def folder(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.is_dir():
            pytest.skip(f"the data set {name} is not beside the checkout")
        return path

    return folder


@pytest.fixture
def add_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ModuleType, str, str], None]]:
    """Return a function that writes a module into a folder which is appended to a package's `__path__`."""
    from xmlsgd.algorithms import algorithm_names

    def add(package: ModuleType, name: str, source: str) -> None:
        folder = tmp_path / package.__name__
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delattr(package, name, raising=False)
        full = f"{package.__name__}.{name}"
        added.append(full)
        importlib.invalidate_caches()
        algorithm_names.cache_clear()

    added: list[str] = []
    yield add
    algorithm_names.cache_clear()
    for full in added:
        sys.modules.pop(full, None)


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
        patch.setattr("xmlsgd.estimators.planning.FOLDED_ROWS", 1)
        yield
