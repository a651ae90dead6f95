"""Compiling: once a process and module it is told, by a logger, and only where it happens."""

from __future__ import annotations

import importlib
import logging
import re
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from shared.paths import ROOT
from xmlsgd.data.files import numba_cache
from xmlsgd.devices.cpu import kernel_cache

MESSAGE = "compiling {}, once on this machine ..."


@pytest.fixture
def add(monkeypatch, tmp_path):
    """A function that makes a new dispatcher of one function, which is cached in a folder of the test's own."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    numba_cache.tell_of_compiling.cache_clear()

    def add(x, y):
        return x + y

    return lambda: numba_cache.cached(njit(add))


def test_the_first_kernel_of_a_module_that_is_compiled_is_told_and_no_other(add, caplog):
    kernel = add()
    for number in (1, np.float32(1)):
        assert kernel(number, number) == 2
    assert [(record.name, record.levelno) for record in caplog.records] == [("xmlsgd", logging.WARNING)]
    assert caplog.messages == [MESSAGE.format("compiling")]


def test_a_kernel_that_lies_in_the_cache_is_not_told(add, caplog):
    assert add()(1, 2) == 3
    numba_cache.tell_of_compiling.cache_clear()
    caplog.clear()
    assert add()(1, 2) == 3
    assert caplog.messages == []


@pytest.mark.parametrize("module", kernel_cache.MODULES)
def test_the_message_names_what_is_compiled(module, caplog):
    numba_cache.tell_of_compiling.cache_clear()
    kernels = importlib.import_module(f"xmlsgd.devices.cpu.kernels.{module}")
    numba_cache.tell_of_compiling(kernels.__name__)
    (message,) = caplog.messages
    assert re.fullmatch(r"compiling [a-z][\w -]{5,80}, once on this machine \.\.\.", message)


@pytest.mark.parametrize(("setting", "shown"), [("", MESSAGE.format("data sets") + "\n"), ("setLevel('ERROR')", "")])
def test_a_program_that_configured_nothing_sees_it_on_stderr_until_the_logger_is_turned_off(setting, shown):
    code = (
        f"import logging; from xmlsgd.data.files import numba_cache; logging.getLogger('xmlsgd').{setting or 'name'};"
    )
    code += "numba_cache.tell_of_compiling('xmlsgd.data'); numba_cache.tell_of_compiling('xmlsgd.data')"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("", shown)
