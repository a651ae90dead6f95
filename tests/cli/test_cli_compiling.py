"""The message that kernels are compiled."""

from __future__ import annotations

import pytest
from numba import njit
from numba.core import caching

from xmlsgd.cli import main
from xmlsgd.data.files import numba_cache

tell_of_compiling = numba_cache.tell_of_compiling  # before the fixture replaces it


@pytest.fixture
def compile_two(monkeypatch):
    """Let `info` compile two functions, as a run does its kernels, and tell it."""

    def run(console):
        for step in (1, 2):
            assert numba_cache.cached(njit(lambda x: x + step))(3) == 3 + step  # noqa: B023 (called at once)

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])  # nothing is found, nothing stays
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr("xmlsgd.cli.commands.info.run", run)
    monkeypatch.setattr(numba_cache, "tell_of_compiling", tell_of_compiling)
    tell_of_compiling.cache_clear()


def test_compiling_is_announced_once_also_without_a_terminal(compile_two, capsys):
    assert main(["info"]) == 0
    told = "in each process: NUMBA_CACHE_DIR may name a folder to keep them ..."
    assert capsys.readouterr().err == f"xmlsgd: compiling the message that kernels are compiled, {told}\n"


def test_a_folder_for_kernels_that_cannot_be_written_is_named(compile_two, capsys, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/kernels")
    assert main(["info"]) == 0
    assert capsys.readouterr().err.endswith(", in each process: NUMBA_CACHE_DIR=/kernels cannot be written ...\n")


def test_compiling_is_not_announced_with_quiet(compile_two, capsys):
    assert main(["info", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_without_a_home_no_kernels_are_read_from_or_kept_in_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", caching.CacheImpl._locator_classes[2:3])
    assert "UserWideCacheLocator" in caching.CacheImpl._locator_classes[0].__name__
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "~")  # as for a user whom the system does not know
    monkeypatch.chdir(tmp_path)
    assert numba_cache.cached(njit(lambda x: x + 1))(1) == 2
    assert list(tmp_path.iterdir()) == []
