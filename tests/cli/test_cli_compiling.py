"""Kernels that are not in the cache are compiled, and the user is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from numba import njit

from xmlsgd.cli import compiling, main

compiling_told = compiling.compiling_told  # before the fixture that keeps it out of other tests


@pytest.fixture
def compile_two(monkeypatch):
    """Let `info` compile two functions, as a run does its kernels, and tell it."""

    def run(args):
        for step in (1, 2):
            assert njit(lambda x: x + step)(3) == 3 + step  # noqa: B023 (called at once)

    monkeypatch.setattr("xmlsgd.cli.info.run", run)
    monkeypatch.setattr(compiling, "compiling_told", compiling_told)


def test_a_run_says_once_that_it_compiles_also_off_a_terminal(compile_two, capsys):
    assert main(["info"]) == 0
    assert capsys.readouterr().err == f"xmlsgd: {compiling.MESSAGE}\n"


def test_a_quiet_run_and_the_library_do_not_say_that_they_compile(compile_two, capsys):
    assert main(["info", "--quiet"]) == 0
    njit(lambda x: x + 3)(4)
    assert capsys.readouterr() == ("", "")


def test_nothing_is_said_where_all_kernels_are_there(capsys):
    add = njit(lambda x: x + 4)
    assert add(1) == 5
    with compiling_told(SimpleNamespace(quiet=False)):
        assert add(1) == 5
    assert capsys.readouterr().err == ""
