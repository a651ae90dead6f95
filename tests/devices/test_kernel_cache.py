"""Compiled kernels on disk: those of other sources go, foreign files stay, a folder may be missing or unwritable."""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba import njit
from numba.core import caching

from xmlsgd import devices
from xmlsgd.data.files.numba_cache import cached
from xmlsgd.devices.cpu import kernel_cache
from xmlsgd.devices.cpu.compiling import STAMP, Kernel


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "cache_folders", lambda: {tmp_path})
    return tmp_path


@pytest.fixture(autouse=True)
def not_looked_yet():
    kernel_cache.remove_stale.cache_clear()


def test_kernels_of_other_sources_are_dropped_and_foreign_files_are_not_touched(folder):
    ours = f"input_layer.drop_alone_{STAMP}_011-1.py311.nbi"
    foreign = ["cpu_parser.parse-3.py311.nbi", "input_layer.txt", "notes.nbi"]
    stale = [f"{name}_alone_0123456789ab_011-1.py311.nbi" for name in ("input_layer.drop", "linear_training.solve")]
    for name in [ours, *stale, *foreign]:
        (folder / name).touch()
    kernel_cache.remove_stale()
    assert sorted(file.name for file in folder.iterdir()) == sorted([ours, *foreign])


def test_files_are_looked_at_once_in_a_process_whatever_devices_it_makes(monkeypatch):
    looked = []

    def folders():
        looked.append(1)
        return set()

    monkeypatch.setattr(kernel_cache, "cache_folders", folders)
    for _ in range(3):
        devices.cpu.CPU()
    assert len(looked) == 1


def test_the_kernels_of_all_modules_are_known():
    names = [found.name for found in pkgutil.walk_packages(devices.__path__, f"{devices.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    kernels = {value for module in modules for value in vars(module).values() if isinstance(value, Kernel)}
    assert kernels == set(kernel_cache.kernels())
    assert {Path(kernel.alone.py_func.__code__.co_filename).stem for kernel in kernels} <= set(kernel_cache.MODULES)


def test_a_kernel_that_the_cache_has_no_room_for_is_used_all_the_same(monkeypatch):
    tried = []

    def full(*given):
        tried.append(given)
        raise OSError(errno.ENOSPC, "No space left on device")

    def twice(x):
        return 2 * x

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full)
    assert Kernel(twice).alone(3.0) == 6.0
    assert tried


def test_a_function_is_compiled_where_no_folder_for_kernels_can_be_written(monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    twice = cached(njit(lambda x: 2 * x))
    assert twice(3) == 6


def test_a_missing_folder_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_cache, "cache_folders", lambda: {tmp_path / "none"})
    kernel_cache.remove_stale()
    assert list(tmp_path.iterdir()) == []


def test_kernels_that_cannot_be_removed_are_left(folder, monkeypatch):
    stale = folder / "topk.rescore_alone_0123456789ab_011-1.py311.nbc"
    stale.touch()

    def refuse(self, missing_ok=False):
        raise PermissionError(self)

    monkeypatch.setattr(Path, "unlink", refuse)
    kernel_cache.remove_stale()
    assert stale.exists()


def test_kernels_work_where_no_folder_for_a_cache_can_be_written():
    source = (
        "import numpy as np\n"
        "from xmlsgd.devices.base import Dropout\n"
        "from xmlsgd.devices.cpu import CPU\n"
        "A = np.ones((4, 16), np.float32)\n"
        "CPU(1).drop(A, Dropout(0.0, 1))\n"
        "print(A.sum())\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": "/dev/null/none"}
    environment["NUMBA_CACHE_LOCATOR_CLASSES"] = "UserProvidedCacheLocator"
    result = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, env=environment
    )
    assert result.stdout.strip() == "64.0", result.stderr


TRAINING = """
import hashlib
from xmlsgd import XMLClassifier, make_xmc
rows = make_xmc(400, 100, 600, nnz_per_row=10, labels_per_row=2, random_state=0)
for loss in ("softmax", "bce"):
    model = XMLClassifier((64,), loss=loss, batch_size=64, max_epochs=1, precision="float32", n_jobs=1, random_state=0)
    print(hashlib.sha256(model.fit(rows.X, rows.Y).params_.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_process_that_compiles_learns_the_same_bits_as_those_that_load(tmp_path):
    given = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    compiled, loaded = (
        subprocess.run([sys.executable, "-c", TRAINING], env=given, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert "compiling losses" in compiled.stderr
    assert "compiling" not in loaded.stderr
    assert compiled.stdout == loaded.stdout
