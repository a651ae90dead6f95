"""Every device of this machine, and the stand-in for a GPU, as parameters of tests."""

from __future__ import annotations

from functools import partial

import pytest

from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_BFLOAT16, NEEDS_COMPILER, NEEDS_GPU
from shared.on_host import OnHost
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cuda import CUDA

CHUNK_BYTES = 1 << 17  # some hundred labels: the larger shapes take several chunks


def shim(precision, **options):
    return OnHost(shim_device(precision, **options))


def gpu(precision, **options):
    return OnHost(CUDA(precision=precision, **options))


MAKERS = (("shim", shim, NEEDS_COMPILER), ("cuda", gpu, NEEDS_GPU))
CPUS = [
    pytest.param(partial(CPU, n_threads, precision), id=f"{precision}-{n_threads}", marks=marks)
    for precision, marks in (("float32", ()), ("bfloat16", NEEDS_BFLOAT16))
    for n_threads in (1, 2)
]
DEVICES = CPUS + [
    pytest.param(partial(make, precision, chunk_bytes=CHUNK_BYTES), id=f"{precision}-{name}", marks=marks)
    for name, make, marks in MAKERS
    for precision in ("float32", "bfloat16")
]


def started(make):
    device = make()
    with device.start():
        yield device


@pytest.fixture(scope="module", params=DEVICES)
def make_device(request):
    return request.param


@pytest.fixture(scope="module")
def device(make_device):
    yield from started(make_device)


@pytest.fixture(scope="module", params=CPUS)
def cpu(request):
    yield from started(request.param)
