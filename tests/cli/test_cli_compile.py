"""The command `compile`: what it compiles."""

from __future__ import annotations

import errno
import subprocess
import sys
from unittest.mock import Mock

import pytest
from numba import njit
from numba.core import caching

from shared.command_line import run
from shared.paths import ROOT
from xmlsgd import XMLClassifier
from xmlsgd.cli import main
from xmlsgd.cli.training_runs import compile_kernels
from xmlsgd.data.files.numba_cache import cached, not_kept

LEARN_AND_ANSWER = """
from tempfile import TemporaryDirectory
import numpy as np
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.devices.cpu.kernel_cache import all_forms
data = make_xmc(3000, 300, 600, nnz_per_row=6, labels_per_row=2, random_state=0)
for n_jobs in (1, 2):
    model = XMLClassifier(n_jobs=n_jobs, max_epochs=1, random_state=0).fit(data.X, data.Y)
    assert model.candidates_ is not None
    with TemporaryDirectory() as folder:
        model.save(folder + "/compact", compact=True)
        compact = XMLClassifier.load(folder + "/compact").set_params(n_jobs=n_jobs)
        for each in (model, compact):
            for X in (data.X, data.X.span(0, 1), np.zeros((1, data.X.n_cols), np.float32)):
                each.predict_topk(X)
                each.predict_proba(X)
            each.explain(data.X.span(0, 1))
            each.explain(data.X.span(0, 1), labels=[0, 1])
forms = all_forms()
print(sum(sum(form.stats.cache_misses.values()) for form in forms), sum(bool(form.stats.cache_hits) for form in forms))
"""


def test_kernels_are_compiled_without_room_for_temporary_files(monkeypatch):
    tried = []

    def full(*given, **options):
        tried.append(given)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(XMLClassifier, "save", full)
    compile_kernels({"n_jobs": 1, "max_epochs": 1})
    assert tried


def disk_full(*given, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def compile_one(monkeypatch, tmp_path):
    """Let the command compile one kernel, to keep it in a folder of the test's own."""
    device = Mock(load_kernels=lambda *_, **__: cached(njit(lambda x: 2 * x))(3))
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("xmlsgd.estimators.workers.make_device", lambda *_: device)
    monkeypatch.setattr("xmlsgd.data.parser.parse.parse", lambda *_: None)
    yield
    not_kept.clear()


def test_kernels_that_were_kept_are_a_success(compile_one, capsys):
    assert main(["compile"]) == 0
    assert capsys.readouterr().out.startswith("kernels are compiled (")


def test_the_command_fails_where_no_folder_can_be_written(compile_one, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert main(["compile"]) == 1
    why = f"NUMBA_CACHE_DIR={tmp_path} cannot be written"
    assert capsys.readouterr() == ("", f"xmlsgd: not all kernels are compiled and kept: {why}\n")


def test_the_command_fails_where_kernels_have_no_room(compile_one, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(caching.IndexDataCacheFile, "save", disk_full)
    assert main(["compile"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert f"not all kernels are compiled and kept: {tmp_path}" in err
    assert "No space left on device" in err


def test_the_command_fails_without_room_for_temporary_files(compile_one, capsys, monkeypatch):
    monkeypatch.setattr("xmlsgd.cli.training_runs.compile_kernels", compile_kernels)
    monkeypatch.setattr(XMLClassifier, "save", disk_full)
    assert main(["compile", "--threads", "1"]) == 1
    assert "not all kernels are compiled and kept: temporary files: No space left" in capsys.readouterr().err


@pytest.mark.parametrize("compact", [False, True])
def test_kernels_of_compact_models_are_compiled_only_where_one_will_be_saved(monkeypatch, compact):
    saved, loaded = [], Mock()
    monkeypatch.setattr(XMLClassifier, "fit", lambda model, *_, **__: model)
    monkeypatch.setattr(XMLClassifier, "save", lambda model, path, compact: saved.append(compact))
    monkeypatch.setattr(XMLClassifier, "load", lambda path: loaded)
    compile_kernels({"n_jobs": 2}, compact=compact)
    assert saved == [False, True][: 1 + compact]
    loaded.set_params.assert_called_with(n_jobs=2)  # which is not saved: few rows would have one thread


@pytest.mark.slow
def test_nothing_is_compiled_after_the_command_for_one_thread_or_two(capsys):
    run("compile", "--threads", "2")
    assert capsys.readouterr().out.startswith("kernels are compiled (")
    done = subprocess.run(
        [sys.executable, "-c", LEARN_AND_ANSWER], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    compiled, found = map(int, done.stdout.split())
    assert compiled == 0
    assert found > 20
