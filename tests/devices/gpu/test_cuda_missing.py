"""What is missing for a GPU is said in one line, with what to do."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace

import pytest

from xmlsgd.devices import get_device
from xmlsgd.devices.cuda import CUDA
from xmlsgd.errors import DataError


def present(monkeypatch, **cuda):
    """Pretend that CuPy is installed with these names in `cupy.cuda`."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(**cuda)))


def test_what_is_missing_for_a_gpu_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        DataError, match=r"^device 'cuda:1': CuPy is not installed; use 'cpu', or pip install \"xmlsgd\[cuda12\]\""
    ):
        get_device("cuda:1")
    present(monkeypatch, runtime=SimpleNamespace(getDeviceCount=lambda: 0))
    with pytest.raises(DataError, match=r"^device 'cuda:0': CuPy finds no GPU; use 'cpu', or install NVIDIA's driver"):
        get_device("cuda")
    present(monkeypatch, runtime=SimpleNamespace(getDeviceCount=lambda: 2))
    with pytest.raises(DataError, match=r"^device 'cuda:2': there are 2 GPUs, counted from 0; use 'cuda:0' to"):
        get_device("cuda:2")
    assert repr(get_device("cuda:1")) == repr(partial(CUDA, index=1))

    def broken():
        raise RuntimeError("libcuda.so: no such file\nand more")

    present(monkeypatch, runtime=SimpleNamespace(getDeviceCount=broken))
    with pytest.raises(
        DataError, match=r"^device 'cuda:0': CuPy finds no GPU \(libcuda.so: no such file\); use 'cpu', or install"
    ):
        get_device("cuda:0")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        DataError, match=r"^device 'cuda:0': CuPy does not start \(import of cupy halted.*\); use 'cpu'"
    ):
        get_device("cuda:0")


def test_cupy_without_cublas_is_told_in_one_line(monkeypatch):
    """CuPy's wheels count GPUs by themselves; cuBLAS they lack unless they were installed with it."""
    present(monkeypatch, runtime=SimpleNamespace(getDeviceCount=lambda: 1))
    monkeypatch.setitem(sys.modules, "cupy_backends", None)
    with pytest.raises(
        DataError, match=r"^device 'cuda:0': CuPy finds no cuBLAS \(.*cupy_backends.*\); use 'cpu', or pip install"
    ):
        get_device("cuda:0")(1)


def test_precision_of_a_gpu_is_checked():
    with pytest.raises(DataError, match="precision must be one of auto, float32, bfloat16, got 'half'"):
        CUDA(1, "half")
